"""Broken sinks with a history: each is the archive with one mistake, or has one in what reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from cdc_conformance.reference.archive import ARCHIVE, Archive
from cdc_conformance.sabotage import broken_histories as broken
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.fixtures import SinkFixtures
from cdc_core import SinkRegistration
from cdc_core.stored_history import StoredHistory

__all__ = ["SABOTEURS", "SUITE"]


class HistoryConformance(ExactlyOnce, SinkFixtures):
    """What is promised by sinks with a history alone."""

    kind = "sink"


class ArchiveSuite(HistoryConformance):
    """That part of the suite of sinks with the archive."""

    sink = ARCHIVE

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"archive://{tmp_path}/out"


SUITE = ArchiveSuite


def _broken(cls: type[Archive] | type[StoredHistory]) -> SinkRegistration:
    """Return the archive's registration with another sink, or another history."""
    place = f"{cls.__module__}:{cls.__name__}"
    if issubclass(cls, StoredHistory):
        return dataclasses.replace(ARCHIVE, history=place)
    return dataclasses.replace(ARCHIVE, target=place)


_BROKEN: Mapping[str, type[Archive] | type[StoredHistory]] = {
    "test_recorded_rows_are_read_exactly_once": broken.TellsTheLastFile,
    "test_what_broke_off_is_not_read": broken.KeepsWhatBrokeOff,
    "test_what_was_flushed_and_not_saved_is_not_read": broken.CountsWhatIsFlushed,
    "test_a_repeated_plan_gives_the_same_files": broken.NamesFilesByItsOwnRun,
    "test_a_mark_can_be_recorded_again": broken.RecordsEachMarkOnce,
    "test_nothing_beyond_a_mark_is_read": broken.ListsAllMarks,
    "test_reading_on_misses_and_repeats_nothing": broken.ForgetsWhatIsAboveTheMark,
    "test_rows_of_a_key_are_read_in_order": broken.ListsTheNewestFirst,
    "test_each_version_of_a_table_is_read_with_its_own_columns": broken.KeepsOneShape,
    "test_a_damaged_file_is_noticed": broken.TrustsFiles,
    "test_a_gap_is_noticed": broken.ListsWhatIsThere,
    "test_rows_in_no_record_are_noticed": broken.TakesUnknownForNothing,
    "test_entries_are_told_by_one_flush_only": broken.TellsEntriesAgain,
    "test_entries_are_json": broken.TellsTuples,
    "test_entries_hold_no_secrets": broken.TellsItsPassword,
}
SABOTEURS: Mapping[str, SinkRegistration] = {test: _broken(cls) for test, cls in _BROKEN.items()}
"""The name of each promise's test -> the sink, or the sink with the history, that breaks this promise."""
