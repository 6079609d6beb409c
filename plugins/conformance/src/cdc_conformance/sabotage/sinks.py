"""Broken sinks: each is the reference sink with one mistake."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from cdc_conformance.promises import promises_of
from cdc_conformance.reference.disturbance import DirectoryDisturbance
from cdc_conformance.reference.sink import REFERENCE_SINK, ReferenceSink
from cdc_conformance.sabotage.broken_sinks import (
    contents,
    heavy_options,
    lives,
    manners,
    marks,
    refusals,
    tested_inside,
    troubles,
)
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.suite import SINK_CAPABILITIES, SinkConformance
from cdc_core import SinkRegistration
from cdc_core.options import MB

__all__ = ["ELSEWHERE", "SABOTEURS", "SUITE"]


class ReferenceSinkSuite(SinkConformance):
    """The suite with the reference sink, every capability declared."""

    sink = REFERENCE_SINK

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        return SINK_CAPABILITIES.keys()

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
"""What a sink with a history promises: `cdc_conformance.sabotage.histories`."""


def _broken(cls: type[ReferenceSink]) -> SinkRegistration:
    """Return a registration of *cls* in place of the reference sink, with options of its own if it has any."""
    own = f"{cls.__name__}Options"
    has_own = hasattr(sys.modules[cls.__module__], own)
    return dataclasses.replace(
        REFERENCE_SINK,
        target=f"{cls.__module__}:{cls.__name__}",
        options=f"{cls.__module__}:{own}" if has_own else REFERENCE_SINK.options,
    )


_BROKEN: Mapping[str, type[ReferenceSink]] = {
    # lives
    "test_a_constructor_has_no_side_effects": lives.CreatesOnConstruction,
    "test_an_unused_sink_can_be_closed": lives.ClosesOnlyWhatBegan,
    "test_closing_twice_is_harmless": lives.ClosesOnlyOnce,
    "test_a_slice_can_be_repeated_by_another_sink_of_the_run": lives.RefusesKnownSlices,
    "test_use_after_close_is_an_error": lives.WritesWhenClosed,
    "test_rows_before_begin_are_an_error": lives.TakesRowsAnyTime,
    "test_an_empty_batch_is_accepted": lives.NeedsRows,
    "test_a_slice_without_rows_can_be_flushed": lives.NeedsSomethingToFlush,
    "test_repr_is_harmless": lives.ShowsItsBuffer,
    "test_check_accepts_a_destination_that_can_be_used": lives.DemandsADirectory,
    "test_check_changes_nothing": lives.ProbesByWriting,
    "test_check_refuses_a_destination_that_cannot_be_used": lives.AcceptsAnyDestination,
    "test_prepare_can_be_repeated": lives.TakesEmptyForMissing,
    "test_prepare_keeps_what_is_there": lives.StartsOver,
    "test_topic_connects_to_nothing": lives.ConnectsForTopics,
    "test_tables_with_odd_names_stay_apart": lives.FlattensNames,
    "test_tables_of_one_name_stay_apart_by_their_full_names": lives.NamesTopicsByTable,
    # contents
    "test_every_value_comes_back": contents.LosesDigits,
    "test_keys_come_back_whole": contents.CutsKeys,
    "test_scanned_and_updated_rows_come_back": contents.DropsScans,
    "test_tombstones_come_back": contents.SkipsTombstones,
    "test_nulls_come_back": contents.SkipsNulls,
    "test_unicode_comes_back": contents.SpeaksAscii,
    "test_deletes_come_back": contents.DropsDeletes,
    "test_large_values_come_back": contents.CutsValues,
    "test_flush_counts_messages": contents.NeverStartsCounting,
    "test_flush_counts_bytes": contents.CountsNoBytes,
    "test_many_rows_come_back": contents.WaitsForAFullRequest,
    "test_several_tables_share_a_slice": contents.KeepsTheFirstTopic,
    "test_a_schema_change_in_a_slice_is_followed": contents.DropsNewColumns,
    "test_sinks_of_one_run_do_not_disturb_each_other": contents.KeepsItsPlace,
    "test_begin_forgets_what_was_not_flushed": contents.ForgetsNothing,
    "test_versions_of_a_key_stay_in_order_in_a_slice": contents.ReversesBatches,
    "test_versions_of_a_key_stay_in_order_over_slices": contents.PutsNewestFirst,
    "test_a_key_stays_at_one_endpoint": contents.MovesKeys,
    # marks
    "test_flush_is_a_barrier": marks.KeepsRowsForLater,
    "test_a_slice_that_was_written_but_not_reported_can_be_repeated": marks.UndoesTheUnresolved,
    "test_a_slice_that_broke_off_can_be_repeated": marks.ClosesWithTheNewest,
    "test_a_dead_process_holds_nothing_up": marks.HoldsItsLockInAFile,
    "test_repeated_rows_are_not_there_twice": marks.WritesEverythingAgain,
    "test_a_resolved_mark_follows_its_rows": marks.MarksInFront,
    "test_a_resolved_mark_reaches_every_endpoint": marks.MarksOnePartition,
    "test_only_emit_resolved_writes_marks": marks.MarksWhenFlushed,
    "test_a_resolved_mark_can_be_repeated": marks.AllowsEachMarkOnce,
    "test_resolved_timestamps_come_back_exactly": marks.RoundsTime,
    "test_a_resolved_mark_is_durable": marks.KeepsMarksForLater,
    # troubles
    "test_a_failing_destination_is_worth_a_retry": troubles.GivesUpForAnOutage,
    "test_a_new_sink_delivers_after_a_failure": troubles.RemembersFailures,
    "test_an_open_sink_loses_nothing_in_a_restart": troubles.KeepsFilesOpen,
    "test_an_outage_in_a_slice_loses_and_reorders_nothing": troubles.SendsAgainLater,
    "test_errors_are_of_the_frameworks_tree": troubles.RaisesWhatItGets,
    "test_errors_are_one_sentence": troubles.TellsEverything,
    "test_flush_waits_for_slow_acknowledgement": troubles.GivesUpAtOnce,
    "test_memory_is_bounded_while_the_destination_stalls": troubles.BuffersWithoutEnd,
    "test_close_does_not_wait_for_a_stalled_destination": troubles.FlushesWhenClosed,
    # refusals
    "test_what_the_encoder_raises_leaves_emit_as_it_is": refusals.SkipsWhatCannotBeEncoded,
    "test_nothing_of_a_batch_that_cannot_be_encoded_was_taken": refusals.TakesRowsOneByOne,
    "test_a_sink_goes_on_after_a_row_that_cannot_be_encoded": refusals.StartsOverAfterAnError,
    "test_a_slice_of_nothing_but_bad_rows_leaves_nothing": refusals.OpensBeforeItEncodes,
    "test_a_row_from_the_dead_letters_arrives_though_it_is_old": refusals.TakesOnlyLaterRows,
    "test_every_flush_of_a_slice_is_a_barrier": refusals.FlushesOncePerSlice,
    "test_several_flushes_of_a_slice_overwrite_nothing": refusals.WritesTheSliceAnew,
    "test_flushes_of_a_slice_count_what_is_new": refusals.CountsTheSlice,
    "test_a_bad_row_is_refused_as_a_row": refusals.DropsLargeRows,
    "test_a_refusal_delivers_all_other_rows": refusals.StopsAtTheFirstRefusal,
    "test_rows_beside_refused_ones_are_counted": refusals.CountsTheRefused,
    "test_bad_rows_are_put_aside_and_all_others_arrive": refusals.LosesPatience,
    "test_a_sink_goes_on_after_a_refusal": refusals.RemembersRefusals,
    "test_a_refusal_as_a_whole_forgets_all_since_the_flush": refusals.KeepsTheRestOfARefusal,
    "test_versions_of_a_key_stay_in_order_around_a_refused_one": refusals.HurriesAfterARefusal,
    "test_a_sink_that_says_it_refuses_no_rows_never_does": refusals.SaysItRefusesNothing,
    "test_a_partial_failure_names_the_refused_rows": refusals.CountsFromOne,
    "test_a_refused_row_is_named_once": refusals.NamesThemAgain,
    "test_refused_rows_are_counted_over_several_emits": refusals.CountsWithinTheBatch,
    "test_refused_rows_are_counted_anew_after_a_flush": refusals.CountsFromBegin,
    "test_refused_rows_are_counted_anew_in_each_slice": refusals.CountsTheAbandoned,
    # manners
    "test_a_misspelt_option_is_refused_with_a_hint": manners.KnowsTypos,
    "test_every_option_is_documented": manners.SaysNothing,
    "test_any_value_of_an_option_is_accepted_or_refused": manners.DividesOptions,
    "test_options_survive_pickle": manners.HoldsALock,
    "test_secrets_do_not_show_in_repr": manners.ShowsOptions,
    "test_secrets_do_not_show_in_errors": manners.NamesSecrets,
    "test_secrets_are_not_logged": manners.LogsOptions,
    "test_no_thread_is_left": manners.LeavesThreads,
    "test_no_socket_is_left": manners.LeavesSockets,
    "test_no_file_is_left_open": manners.LeavesFiles,
    "test_no_temporary_file_is_left": manners.LeavesTemporaries,
    "test_nothing_is_printed": manners.PrintsProgress,
    "test_registration_and_options_import_no_client_library": heavy_options.ImportsItsClient,
    "test_the_sink_imports_neither_pytest_nor_pyspark": tested_inside.ImportsPytest,
}
SABOTEURS: Mapping[str, SinkRegistration] = {test: _broken(cls) for test, cls in _BROKEN.items()}
"""The name of each promise's test -> the sink that breaks this promise."""
