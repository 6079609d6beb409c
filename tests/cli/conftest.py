"""A changefeed of scripted components in a file, and an engine in place of the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.components import encoder, host, rangefeed, sink

from cdc_core.engine import supervisor
from cdc_core.engine.attempts import Ending
from cdc_core.engine.run_control import RunContext
from cdc_core.plugins.host import PluginHost
from cdc_core.telemetry.status import Status

TOML = """
[changefeed.orders]
source = "paper://user:hunter2@desk/db"
tables = ["public.counter"]
sink = "shelf://room"
[changefeed.orders.options]
control = "{control}"
"""

Run = Callable[..., Any]
"""What a scripted engine does in place of a run; it returns how the run ended, or None when it is complete."""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands lock changefeeds in `.cdc` where they are called, and other processes test the same names."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def plugins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted components, in place of the installed ones, and the `PLUGINS` of a file of tests."""
    scripted = host(
        *getattr(request.module, "PLUGINS", ()),
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)


@pytest.fixture
def cdc(capsys: pytest.CaptureFixture[str]) -> Cdc:
    return Cdc(capsys)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(TOML.format(control=tmp_path))
    return path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Return a function that puts another engine in place of the real one."""

    def use(run: Run) -> None:
        class ScriptedRun:
            def __init__(self, context: RunContext, **rest: Any) -> None:
                self.status = Status(changefeed=context.feed.name, phase="starting")
                self._feed = context.feed
                of_context = {name: getattr(context, name) for name in ("store", "state_dir", "control", "once")}
                self._rest = {**of_context, **rest, "status": self._show}

            def run(self) -> Ending:
                return run(self._feed, **self._rest) or "complete"

            def _show(self, status: Status) -> None:
                self.status = status

        monkeypatch.setattr(supervisor, "Run", ScriptedRun)

    return use
