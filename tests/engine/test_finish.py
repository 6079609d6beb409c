"""A changefeed that ends by itself, at its `end_time`: what it delivers, and what the next run does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.local_engine import LocalEngine
from cdc_testing.thread_host import ThreadEngine

from cdc_core import ConfigError, Timestamp
from cdc_core.engine.finish import finish_earlier_run
from cdc_core.engine.resolved_marks import emit_last_resolved_mark
from cdc_core.errors import RetryableSinkError

END = {"end_time": str(Timestamp(50))}
LATER = {"end_time": str(Timestamp(2345))}


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


def test_a_changefeed_ends_at_its_end_time_and_its_source_forgets_it(engine: ThreadEngine) -> None:
    assert engine.run(total=1000, rows_per_step=1000) == 0
    assert engine.run(once=False, total=5000, rows_per_step=1000, options=LATER) == 0
    assert engine.journal.numbers() == set(range(1, 1001)) | set(range(1002, 2346))  # the first run passed 1001
    assert engine.journal.resolved[-1] == 2345
    assert engine.saved == 3001
    assert engine.journal.of("drop") == [["drop"]]

    events = len(engine.journal.events)
    assert engine.run(once=False, total=5000, options=LATER) == 0
    assert engine.journal.events[events:] == [["drop"]]

    with pytest.raises(ConfigError, match="which cannot be changed"):
        engine.run(once=False, total=5000, options={"end_time": str(Timestamp(4000))})


def test_once_ends_before_a_later_end_time_and_the_next_run_continues(engine: ThreadEngine) -> None:
    assert engine.run(total=1000, rows_per_step=400, options=LATER) == 0
    assert engine.journal.resolved[-1] == 1001
    assert engine.journal.of("drop") == []
    assert engine.run(total=5000, rows_per_step=400, options=LATER) == 0
    assert engine.journal.resolved[-1] == 2345
    assert max(engine.journal.numbers()) == 2345
    assert engine.journal.of("drop") == [["drop"]]


def test_an_end_time_before_the_start_is_refused_before_anything_is_created(engine: ThreadEngine) -> None:
    with pytest.raises(ConfigError, match="which is not earlier than its end_time"):
        engine.run(once=False, total=3000, options=LATER)
    assert engine.journal.events == []
