"""A changefeed of scripted components in a file, and an engine in place of the real one."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink

from cdc_core.plugins.host import PluginHost

TOML = """
[changefeed.orders]
source = "paper://user:hunter2@desk/db"
tables = ["public.counter"]
sink = "shelf://room"
[changefeed.orders.options]
control = "{control}"
"""

Run = Callable[..., int]


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted components, in place of the installed ones."""
    scripted = host(
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(TOML.format(control=tmp_path))
    return path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Return a function that puts another engine in place of the real one."""

    def use(run: Run) -> None:
        module = types.ModuleType("cdc_core.spark.runner")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cdc_core.spark.runner", module)

    return use
