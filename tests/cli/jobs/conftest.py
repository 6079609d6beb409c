"""Jobs of scripted components, in a store that the environment names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink

from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

SCRIPTED = "cdc_testing.scripted:"


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = host(
        rangefeed(options=f"{SCRIPTED}CounterOptions", changes_tables=True),
        encoder(),
        encoder("lines"),
        sink(options=f"{SCRIPTED}JournalOptions"),
        sink("drawer", schemes=("drawer",), options=f"{SCRIPTED}JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)
    monkeypatch.setenv("LOGNAME", "ann")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressStore]:
    """The store that the environment names; it is not there yet."""
    monkeypatch.setenv("CDC_STORE", store_url(tmp_path / "nodes"))
    store = ProgressStore(store_url(tmp_path / "nodes"))
    yield store
    store.close()


@pytest.fixture
def file(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, with a reference in place of its secret."""
    monkeypatch.setenv("PAPER_PASSWORD", "hunter2")
    file.write_text(file.read_text().replace("hunter2", "${PAPER_PASSWORD}"))
    return file
