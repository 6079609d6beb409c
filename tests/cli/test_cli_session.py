"""What the commands print on the console."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cdc_testing.command import Cdc
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from cdc_core.cli.session import CliSession
from cdc_core.errors import ConfigError


def hang_up(server: socket.socket) -> None:
    with suppress(OSError):  # closed
        while True:
            connection, _ = server.accept()
            connection.recv(1)
            connection.close()


@pytest.mark.parametrize(("logs", "debug"), [(False, False), (True, False), (True, True)])
def test_a_dead_jvm_shows_no_traceback_of_py4j(
    logs: bool, debug: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    session = CliSession()
    session.debug = debug
    if logs:
        session.start_logging()
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=hang_up, args=[server], daemon=True).start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        with pytest.raises(Py4JError):
            gateway.jvm.java.lang.System.nanoTime()
    logging.getLogger().warning("of ours")
    err = capsys.readouterr().err
    assert "of ours" in err
    assert ("Traceback" in err) == debug


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("place", ["a terminal that is gone", "a pipe without a reader", "a full disk"])
def test_a_log_that_cannot_be_written_fails_nothing(
    place: str, log_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = {
        "a terminal that is gone": os.openpty,
        "a pipe without a reader": os.pipe,
        "a full disk": lambda: (os.open("/dev/null", os.O_RDONLY), os.open("/dev/full", os.O_WRONLY)),
    }[place]()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logged = 0
    with suppress(OSError), open(writing, "w", buffering=1) as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        session = CliSession()
        session.log_format = log_format
        session.start_logging()
        os.close(reading)
        for _ in range(2):
            logging.getLogger().warning("of ours")
            logged += 1
    assert logged == 2


def test_lines_of_json_are_all_that_a_run_prints(
    file: Path, engine: Callable[[Callable[..., Any]], None], cdc: Cdc
) -> None:
    def run(*_: Any, **__: Any) -> None:
        logging.getLogger("cdc_core.engine.run").warning("changefeed 'orders': no access with hunter2")
        raise ConfigError("the password hunter2 is wrong; correct it, and run `cdc check FILE NAME`")

    engine(run)
    lines = [json.loads(line) for line in cdc.refused("run", file, "--log-format", "json").splitlines()]
    assert {"time", "level", "changefeed", "event", "message"} == set(lines[0])
    assert [line["message"] for line in lines if line["level"] != "info"] == [
        "changefeed 'orders': no access with ***",
        f"error: the password *** is wrong; correct it, and run `cdc check {file} orders`",
    ]


def test_an_interrupt_is_a_line_of_json_too(file: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cdc_core.cli.run.make_state_directory", interrupt)
    *_, last = filter(None, cdc("run", file, "--log-format", "json", status=130).err.splitlines())
    assert json.loads(last)["message"] == "interrupted"
