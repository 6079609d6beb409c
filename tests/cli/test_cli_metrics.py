"""`cdc run --metrics`."""

from __future__ import annotations

import socket
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.stored import DEFINITION

from cdc_core.cli.main import main

Run = Callable[..., Any]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_metrics_of_the_changefeeds_of_a_run_are_served_while_it_lasts(
    file: Path, port: int, engine: Callable[[Run], None]
) -> None:
    got: list[str] = []

    def run(feed: Any, *, store: Any, **_: Any) -> None:
        for name in (feed.name, "other"):
            store.changefeeds.register(name, DEFINITION)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            got.append(answer.read().decode())

    engine(run)
    assert main(["run", str(file), f"--metrics=127.0.0.1:{port}"]) == 0
    assert 'cdc_changefeed_up{changefeed="orders",label=""} 0.0' in got[0]
    assert 'changefeed="other"' not in got[0]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)


def test_a_port_that_is_taken_ends_the_command_before_anything_runs(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Any] = []
    engine(lambda feed, **_: ran.append(feed))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["run", str(file), "--metrics", f"127.0.0.1:{taken.getsockname()[1]}"]) == 2
    assert "cannot listen there: Address already in use" in capsys.readouterr().err
    assert ran == []


def test_a_word_that_is_no_address_is_not_taken_for_one(file: Path, cdc: Cdc) -> None:
    assert "error: --metrics orders: this is not HOST:PORT" in cdc.refused("run", file, "--metrics", "orders")


def test_without_the_library_the_error_says_how_to_install_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    for module in [
        name
        for name in sys.modules
        if name.startswith(("prometheus_client", "cdc_core.web.metrics", "cdc_core.web.expo"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert "error: --metrics needs a library: pip install 'cdc-core[metrics]'" in cdc.refused("run", file, "--metrics")
