"""Calls of a sink that outlast their attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core import Flushed, RowBatch, Sink, repeating
from cdc_core.engine.fencing import EpochCheck, FencedSink
from cdc_core.engine.start_position import register
from cdc_core.errors import FencedError
from cdc_core.store.progress import ProgressStore, store_url


class Repeating(Sink):
    """Repeats something for ever inside `flush`; a newer attempt begins at the third time."""

    store: ProgressStore
    times = 0

    def emit(self, rows: RowBatch) -> None: ...

    def flush(self) -> Flushed:
        while True:
            self.times += 1
            if self.times == 3:
                self.store.begin_attempt("t")
            with repeating("busy", next_attempt_s=0.0):
                pass


def test_a_call_that_repeats_something_ends_when_a_newer_attempt_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.engine.fencing.CHECK_VALID_S", 0.0)
    context: Any = None
    store = ProgressStore(store_url(tmp_path))
    register(counter_feed(tmp_path), store)
    sink = Repeating(context)
    sink.store = store
    check = EpochCheck(store, name="t", epoch=store.begin_attempt("t"))
    with pytest.raises(FencedError):
        FencedSink(sink, check.require_newest).flush()
    assert sink.times == 3
    with repeating("outside of the call nothing is asked", next_attempt_s=0.0):
        pass
    store.close()
