"""Broken sinks: each is the reference sink with one mistake."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cdc_conformance.promises import promises_of
from cdc_conformance.reference.disturbance import DirectoryDisturbance
from cdc_conformance.reference.registrations import REFERENCE_SINK
from cdc_conformance.sabotage.broken_sinks import (
    contents,
    heavy_options,
    lifecycle,
    marks,
    outages,
    refusals,
    surroundings,
    tested_inside,
)
from cdc_conformance.sabotage.sink_parts import Part, replaced
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.suite import SINK_CAPABILITIES, SinkConformance
from cdc_core import MB, SinkRegistration

__all__ = ["ELSEWHERE", "SABOTEURS", "SUITE"]


class ReferenceSinkSuite(SinkConformance):
    """The suite with the reference sink, which declares every capability."""

    sink = REFERENCE_SINK
    capabilities = frozenset(SINK_CAPABILITIES)

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"reference://{tmp_path}/out"

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        (tmp_path / "file").touch()
        return f"reference://{tmp_path}/file/out"

    @pytest.fixture
    def row_limit_bytes(self) -> int:
        return MB // 2

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        return 4 * MB

    @pytest.fixture
    def watch_s(self) -> float:
        return 0.15

    @pytest.fixture
    def settle_s(self) -> float:
        return 1.0

    @pytest.fixture
    def close_limit_s(self) -> float:
        return 2.0

    @pytest.fixture
    def disturbance(self, tmp_path: Path) -> DirectoryDisturbance:
        return DirectoryDisturbance(tmp_path / "out")


SUITE = ReferenceSinkSuite
ELSEWHERE = frozenset(promises_of(ExactlyOnce))
"""Promises of sinks with a history: `cdc_conformance.sabotage.histories` breaks them."""


_BROKEN: Mapping[str, Part] = {
    # lifecycle
    "test_constructors_have_no_side_effects": lifecycle.CreatesInConstructor,
    "test_unused_parts_can_be_closed": lifecycle.ClosesOnlyAfterBegin,
    "test_closing_twice_is_harmless": lifecycle.ClosesOnlyOnce,
    "test_another_sink_of_the_attempt_can_repeat_a_slice": lifecycle.RefusesKnownSlices,
    "test_use_after_close_is_an_error": lifecycle.WritesAfterClose,
    "test_an_empty_batch_is_accepted": lifecycle.NeedsRows,
    "test_a_slice_without_rows_can_be_flushed": lifecycle.NeedsSomethingToFlush,
    "test_repr_is_harmless": lifecycle.ShowsItsBuffer,
    "test_check_accepts_a_usable_destination": lifecycle.RequiresDirectory,
    "test_check_changes_nothing": lifecycle.ProbesByWriting,
    "test_check_refuses_an_unusable_destination": lifecycle.AcceptsAnyDestination,
    "test_prepare_can_be_repeated": lifecycle.TreatsEmptyAsMissing,
    "test_prepare_keeps_existing_rows": lifecycle.EmptiesTopics,
    "test_topic_connects_to_nothing": lifecycle.ConnectsForTopics,
    "test_tables_with_unusual_names_have_their_own_topics": lifecycle.FlattensNames,
    "test_full_table_names_give_different_topics": lifecycle.IgnoresFullNames,
    # contents
    "test_every_value_arrives_unchanged": contents.LosesDigits,
    "test_keys_arrive_unchanged": contents.TruncatesKeys,
    "test_scanned_and_updated_rows_arrive": contents.DropsScans,
    "test_tombstones_arrive": contents.SkipsTombstones,
    "test_nulls_arrive": contents.SkipsNulls,
    "test_unicode_arrives_unchanged": contents.WritesAscii,
    "test_deletes_arrive": contents.DropsDeletes,
    "test_large_values_arrive_whole": contents.TruncatesValues,
    "test_flush_counts_messages": contents.CountsThePreviousSlice,
    "test_flush_counts_bytes": contents.CountsNoBytes,
    "test_a_large_slice_arrives_in_order": contents.WaitsForAFullRequest,
    "test_rows_of_several_tables_arrive_at_their_topics": contents.KeepsTheFirstTopic,
    "test_rows_arrive_at_the_topic_that_they_have": contents.IgnoresTopicsOfRows,
    "test_a_schema_change_within_a_slice_is_followed": contents.DropsNewColumns,
    "test_parallel_sinks_do_not_interfere": contents.KeepsOffsets,
    "test_versions_of_a_key_stay_in_order_in_a_slice": contents.ReversesBatches,
    "test_versions_of_a_key_stay_in_order_across_slices": contents.PutsNewestFirst,
    "test_a_key_stays_at_one_endpoint": contents.MovesKeys,
    # marks
    "test_flush_is_a_barrier": marks.LeavesRowsToClose,
    "test_a_flushed_but_unreported_slice_can_be_repeated": marks.UndoesTheUnresolved,
    "test_an_unfinished_slice_can_be_repeated": marks.SendsTheNewestInClose,
    "test_a_dead_process_blocks_nothing": marks.LocksWithAFile,
    "test_repeated_rows_are_not_duplicated": marks.WritesEverythingAgain,
    "test_a_resolved_mark_follows_its_rows": marks.PutsMarksFirst,
    "test_a_resolved_mark_reaches_every_endpoint": marks.MarksOnePartition,
    "test_only_emit_resolved_writes_marks": marks.MarksAfterFlush,
    "test_a_resolved_mark_can_be_repeated": marks.AllowsEachMarkOnce,
    "test_resolved_timestamps_are_exact": marks.RoundsTimestamps,
    "test_a_resolved_mark_is_durable": marks.LeavesMarksToClose,
    # outages
    "test_an_outage_is_retryable": outages.EndsForAnOutage,
    "test_a_new_sink_delivers_after_an_outage": outages.RemembersOutages,
    "test_an_open_sink_survives_a_restart_of_the_destination": outages.KeepsFilesOpen,
    "test_an_outage_within_a_slice_loses_and_reorders_nothing": outages.SendsAgainLater,
    "test_all_errors_are_cdc_errors": outages.RaisesClientErrors,
    "test_errors_are_one_line": outages.PutsTracebacksIntoErrors,
    "test_flush_waits_for_acknowledgement": outages.FlushesInTheBackground,
    "test_memory_is_bounded_while_the_destination_stalls": outages.BuffersWithoutLimit,
    "test_close_does_not_wait_for_a_stalled_destination": outages.FlushesInClose,
    # refusals
    "test_emit_passes_on_encode_errors": refusals.SkipsUnencodableBatches,
    "test_emit_takes_nothing_of_a_batch_that_cannot_be_encoded": refusals.TakesRowsOneByOne,
    "test_a_sink_works_after_an_encode_error": refusals.DiscardsAfterAnError,
    "test_a_slice_of_bad_rows_writes_nothing": refusals.OpensBeforeItEncodes,
    "test_replayed_dead_letters_arrive_although_they_are_old": refusals.AcceptsOnlyLaterRows,
    "test_every_flush_of_a_slice_is_a_barrier": refusals.FlushesOncePerSlice,
    "test_several_flushes_of_a_slice_overwrite_nothing": refusals.OverwritesTheSlice,
    "test_each_flush_counts_only_new_rows": refusals.CountsTheSlice,
    "test_a_bad_row_is_reported_as_refused": refusals.DropsLargeRows,
    "test_rows_beside_refused_ones_are_durable": refusals.StopsAtTheFirstRefusal,
    "test_rows_beside_refused_ones_are_counted": refusals.CountsRefusedRows,
    "test_bad_rows_become_dead_letters_and_all_others_arrive": refusals.LimitsErrors,
    "test_a_sink_works_after_a_refusal": refusals.RemembersRefusals,
    "test_refusing_all_rows_together_forgets_them": refusals.KeepsTheRestOfARefusal,
    "test_versions_of_a_key_stay_in_order_around_a_refused_one": refusals.SendsTheNewestFirstAfterARefusal,
    "test_a_sink_that_refuses_rows_declares_it": refusals.DeclaresNoRefusals,
    "test_flush_lists_exactly_the_refused_rows": refusals.NumbersFromOne,
    "test_a_refused_row_is_listed_once": refusals.ListsRefusedRowsTwice,
    "test_refused_rows_are_numbered_across_batches": refusals.NumbersWithinTheBatch,
    "test_each_flush_restarts_the_numbering_of_rows": refusals.NumbersFromBegin,
    # surroundings
    "test_a_misspelt_option_is_refused_with_a_hint": surroundings.AcceptsTypos,
    "test_every_option_is_documented": surroundings.DocumentsNothing,
    "test_any_value_of_an_option_is_accepted_or_refused": surroundings.DividesByAnOption,
    "test_options_survive_pickle": surroundings.HoldsALock,
    "test_secrets_do_not_show_in_repr": surroundings.ShowsSecrets,
    "test_secrets_do_not_show_in_errors": surroundings.PutsSecretsIntoErrors,
    "test_secrets_are_not_logged": surroundings.LogsSecrets,
    "test_no_thread_is_left": surroundings.LeavesThreads,
    "test_no_socket_is_left": surroundings.LeavesSockets,
    "test_no_file_is_left_open": surroundings.LeavesFiles,
    "test_no_temporary_file_is_left": surroundings.LeavesTemporaryFiles,
    "test_nothing_is_printed": surroundings.PrintsProgress,
    "test_registration_and_options_import_no_client_library": heavy_options.ImportsItsClient,
    "test_the_sink_imports_neither_pytest_nor_pyspark": tested_inside.ImportsPytest,
}


def _broken(cls: Part) -> SinkRegistration:
    """Return the reference sink's registration with *cls* in it, and with options of its own if there are any."""
    registration = replaced(REFERENCE_SINK, cls)
    own = f"{cls.__name__}Options"
    if hasattr(sys.modules[cls.__module__], own):
        return dataclasses.replace(registration, options=f"{cls.__module__}:{own}")
    return dataclasses.replace(registration, refuses_rows=cls is not refusals.DeclaresNoRefusals)


SABOTEURS: Mapping[str, SinkRegistration] = {test: _broken(cls) for test, cls in _BROKEN.items()}
"""The name of each promise's test -> the sink that breaks this promise."""
