"""Warnings of the planner's process reach the driver's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.engine.planner_warnings import PlannerWarnings, keep_warnings


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A directory in which this process keeps its warnings."""
    with keep_warnings(tmp_path):
        yield tmp_path


def test_each_warning_of_the_planner_is_repeated_once_in_one_line(kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    warnings = PlannerWarnings(counter_feed(kept), kept)
    planner = logging.getLogger("cdc_rangefeed_postgres.planner")
    planner.info("scan: started")
    planner.warning("nothing is resolved\nwhile %s is locked", "orders")
    logging.getLogger("py4j.clientserver").warning("closing")
    caplog.clear()
    warnings.repeat()
    warnings.repeat()
    assert caplog.messages == ["changefeed 't': nothing is resolved while orders is locked"]
    planner.error("again")
    caplog.clear()
    warnings.repeat()
    assert caplog.messages == ["changefeed 't': again"]


def test_an_attempt_without_warnings_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    PlannerWarnings(counter_feed(tmp_path), tmp_path).repeat()
    assert caplog.messages == []
