"""A changefeed that ends by itself, seen by the run after the last one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.local_engine import LocalEngine

from cdc_core import Timestamp
from cdc_core.engine.finish import finish_earlier_run
from cdc_core.engine.resolved_marks import emit_last_resolved_mark
from cdc_core.errors import RetryableSinkError

END = {"end_time": str(Timestamp(50))}


def test_a_run_that_died_before_its_last_resolved_mark_is_not_complete(tmp_path: Path) -> None:
    feed = counter_feed(tmp_path, rows_per_step=40, options=END)
    with closing(LocalEngine(feed, tmp_path)) as engine:
        engine.run()
        assert engine.step()
        assert not finish_earlier_run(feed, engine.store)
        (tmp_path / "resolved").write_text("RetryableSinkError busy")
        with pytest.raises(RetryableSinkError):
            engine.step()
        assert engine.high_water == Timestamp(50)
        assert not finish_earlier_run(feed, engine.store)

        engine.run()
        assert not engine.step()
        known = engine.store.changefeeds.find("t")
        assert known is not None
        emit_last_resolved_mark(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), engine.store)
        assert Journal(tmp_path).resolved == [40, 50]
        assert finish_earlier_run(feed, engine.store)
        assert Journal(tmp_path).of("drop") == [["drop"]]


def test_without_resolved_marks_there_is_none_to_wait_for(tmp_path: Path) -> None:
    feed = counter_feed(tmp_path, options={**END, "resolved": None})
    with closing(LocalEngine(feed, tmp_path)) as engine:
        engine.run()
        assert engine.step()
        assert finish_earlier_run(feed, engine.store)
