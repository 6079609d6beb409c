"""What the commands print on the console."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from threading import Thread

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from cdc_core.cli.session import CliSession


def hang_up(server: socket.socket) -> None:
    with suppress(OSError):  # closed
        while True:
            connection, _ = server.accept()
            connection.recv(1)
            connection.close()


@pytest.mark.parametrize("debug", [False, True])
def test_a_dead_jvm_shows_no_traceback_of_py4j(
    debug: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    session = CliSession()
    session.debug = debug
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
