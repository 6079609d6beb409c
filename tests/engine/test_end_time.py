"""A changefeed with `end_time`: what it delivers, that it ends, and what the next run does."""

from __future__ import annotations

import pytest
from cdc_testing.thread_host import ThreadEngine

from cdc_core import ConfigError, Timestamp

END = {"end_time": str(Timestamp(2345))}


def test_a_changefeed_ends_at_its_end_time_and_its_source_forgets_it(engine: ThreadEngine) -> None:
    assert engine.run(total=1000, rows_per_step=1000) == 0
    assert engine.run(once=False, total=5000, rows_per_step=1000, options=END) == 0
    assert engine.journal.numbers() == set(range(1, 1001)) | set(range(1002, 2346))  # the first run passed 1001
    assert engine.journal.resolved[-1] == 2345
    assert engine.saved == 3001
    assert engine.journal.of("drop") == [["drop"]]

    events = len(engine.journal.events)
    assert engine.run(once=False, total=5000, options=END) == 0
    assert engine.journal.events[events:] == [["drop"]]

    with pytest.raises(ConfigError, match="which cannot be changed"):
        engine.run(once=False, total=5000, options={"end_time": str(Timestamp(4000))})


def test_once_ends_before_a_later_end_time_and_the_next_run_continues(engine: ThreadEngine) -> None:
    assert engine.run(total=1000, rows_per_step=400, options=END) == 0
    assert engine.journal.resolved[-1] == 1001
    assert engine.journal.of("drop") == []
    assert engine.run(total=5000, rows_per_step=400, options=END) == 0
    assert engine.journal.resolved[-1] == 2345
    assert max(engine.journal.numbers()) == 2345
    assert engine.journal.of("drop") == [["drop"]]


def test_an_end_time_before_the_start_is_refused_before_anything_is_created(engine: ThreadEngine) -> None:
    with pytest.raises(ConfigError, match="which is not earlier than its end_time"):
        engine.run(once=False, total=3000, options=END)
    assert engine.journal.events == []
