"""Broken rangefeeds: the simulated database, each with one mistake, which must fail exactly one promise's test."""

from __future__ import annotations

import dataclasses
from typing import Any

from cdc_conformance.plugin import SIMULATED
from cdc_conformance.sabotage.broken_rangefeeds import boundaries, lifecycle, moves, planning, rescans, rows
from cdc_conformance.sabotage.rangefeed_suite import SimulatedSuite
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_core import Rangefeed, RangefeedRegistration, SliceReader, SourceHistory, StepPlanner

__all__ = ["SABOTEURS", "SUITE"]

SUITE = SimulatedSuite

_FIELDS: dict[type, str] = {
    Rangefeed: "rangefeed",
    StepPlanner: "planner",
    SliceReader: "reader",
    SourceHistory: "history",
    SimulatedOptions: "options",
}
"""The registration's field for each base class."""


def _broken(*classes: type[Any]) -> RangefeedRegistration:
    """Return the simulated database's registration with *classes* in their fields."""
    targets = {
        next(field for base, field in _FIELDS.items() if issubclass(cls, base)): f"{cls.__module__}:{cls.__qualname__}"
        for cls in classes
    }
    return dataclasses.replace(SIMULATED, **targets)  # type: ignore[arg-type]


SABOTEURS = {
    # startup
    "test_constructors_have_no_side_effects": _broken(lifecycle.ConnectsInTheConstructor),
    "test_check_changes_nothing": _broken(lifecycle.PreparesInCheck),
    "test_check_names_a_missing_table": _broken(lifecycle.ChecksNoTables),
    "test_check_refuses_an_unreachable_source": _broken(lifecycle.RaisesClientErrors),
    "test_schemas_describe_the_tables": _broken(rows.KeylessSchemas),
    "test_options_are_documented": _broken(lifecycle.UndocumentedOption),
    "test_secrets_are_masked": _broken(lifecycle.ShowsItsUri),
    "test_metrics_are_finite_numbers": _broken(lifecycle.ReportsNaN),
    # initial scan
    "test_initial_scan_yields_every_row_once": _broken(rows.ReadsChunkEndsTwice),
    "test_scanned_rows_have_the_op_scan": _broken(rows.ScansAsInserts),
    "test_without_an_initial_scan_only_later_changes_arrive": _broken(rows.AlwaysScans),
    "test_empty_tables_are_resolved": _broken(planning.IgnoresEmptyTables),
    "test_scan_progress_rises_until_the_scan_is_complete": _broken(planning.CountsDown),
    "test_rows_changed_during_the_scan_arrive_in_order": _broken(rows.ScansTheLastChunkWithoutSnapshot),
    "test_no_row_is_missed_between_scan_and_log": _broken(rows.SkipsTransactionsOpenAtTheStart),
    # transactions
    "test_every_committed_version_arrives": _broken(rows.KeepsTheNewestTwentyVersions),
    "test_versions_of_a_key_arrive_in_order": _broken(rows.YieldsDeletesLast),
    "test_rolled_back_rows_do_not_arrive": _broken(rows.ReadsIntents),
    "test_a_long_transaction_arrives_after_its_commit": _broken(rows.DropsLongTransactions),
    "test_all_rows_of_a_transaction_have_one_timestamp": _broken(rows.NumbersRowsOfATransaction),
    "test_ops_are_correct": _broken(rows.ReportsUpdatesAsInserts),
    "test_a_dropped_table_stops_the_changefeed": _broken(planning.IgnoresDroppedTables),
    # row contents
    "test_before_is_the_previous_committed_version": _broken(rows.BeforeIsAfter),
    "test_before_is_absent_without_diff": _broken(rows.AlwaysYieldsBefore),
    "test_after_is_null_for_deletes_only": _broken(rows.KeepsAfterOfDeletes),
    "test_deletes_carry_the_key": _broken(rows.DeletesWithoutKey),
    "test_keys_match_their_rows": _broken(rows.UpdatesWithoutKey),
    "test_values_arrive_unchanged": _broken(rows.EmptyIsNull),
    "test_unchanged_large_values_are_present": _broken(rows.DropsUnchangedLargeValues),
    "test_mvcc_is_never_after_updated": _broken(rows.MvccAfterUpdated),
    "test_mvcc_of_scanned_rows_is_their_commit_time": _broken(rows.UsesTheScanTimeAsMvcc),
    "test_columns_have_the_declared_types": _broken(rows.WideOps),
    "test_rows_carry_the_schema_they_were_written_with": _broken(rows.KeepsTheFirstSchema),
    "test_schema_versions_increase_across_restarts": _broken(rows.NumbersSchemasByWidth),
    # schema boundaries
    "test_no_resolved_mark_passes_a_schema_change_before_its_backfill": _broken(
        boundaries.ResolvesBeforeTheBackfillIsComplete
    ),
    "test_a_schema_change_of_an_idle_table_is_noticed": _broken(boundaries.NoticesIdleTablesOneStepLate),
    "test_a_backfill_is_complete_whatever_was_killed": _broken(boundaries.ForgetsTheBackfill),
    "test_a_backfill_yields_every_row_that_exists": _broken(boundaries.BackfillsWhatTheInitialScanRead),
    "test_a_backfill_is_later_than_everything_before": _broken(boundaries.BackfillsAsOfTheLastMark),
    "test_all_rows_follow_under_a_changed_key": _broken(boundaries.KeepsTheFirstKey),
    "test_policy_stop_ends_the_changefeed_at_the_change": _broken(boundaries.StopsOneStepLate),
    "test_policy_nobackfill_yields_no_rows_for_the_change": _broken(boundaries.BackfillsUnasked),
    "test_schema_change_events_select_the_changes": _broken(boundaries.BackfillsForEveryChange),
    # rescans
    "test_a_rescan_yields_every_row_again": _broken(rescans.RescansWhatTheInitialScanRead),
    "test_a_rescan_with_a_predicate_yields_the_rows_that_it_selects": _broken(rescans.IgnoresPredicates),
    "test_no_mark_is_resolved_before_a_rescan_is_complete": _broken(rescans.ResolvesWhileARescanWaits),
    # moves
    "test_a_move_to_now_leaves_out_what_was_committed_before_and_nothing_else": _broken(moves.MovesNowhere),
    "test_a_move_into_the_future_is_refused": _broken(moves.MovesIntoTheFuture),
    # marks
    "test_span_marks_follow_the_rows_of_their_slice": _broken(planning.YieldsMarksFirst),
    "test_rows_are_at_or_below_the_mark_of_their_span": _broken(planning.MarksBelowTheLastRow),
    "test_rows_are_above_the_marks_of_earlier_steps": _broken(
        planning.IncludesTheLastStepsEnd, planning.IncludesTheLastStepsEndReader
    ),
    "test_no_row_is_below_its_slices_lower_bound": _broken(planning.UsesTheEndAsLowerBound),
    "test_resolved_never_moves_back": _broken(
        planning.ResolvesBackwardsAfterARestart, planning.ResolvesBackwardsAfterARestartReader
    ),
    "test_nothing_is_resolved_before_the_scan_is_complete": _broken(planning.MarksWholeTables),
    "test_a_resolved_timestamp_is_a_consistent_cut": _broken(
        planning.ResolvesIdleTablesAhead, planning.ResolvesIdleTablesAheadReader
    ),
    "test_resolving_now_covers_earlier_commits": _broken(planning.ClockBehindTheLastCommit),
    "test_an_idle_source_keeps_resolving": _broken(planning.StopsResolvingWhenIdle),
    "test_advance_returns_its_start_when_idle": _broken(planning.CountsCallsInTheToken),
    "test_no_key_is_in_two_slices_of_a_step": _broken(planning.RepeatsTheFirstSlice),
    # limits
    "test_log_steps_obey_the_row_limit": _broken(planning.IgnoresTheRowLimit),
    "test_log_steps_obey_the_byte_limit": _broken(planning.IgnoresTheByteLimit),
    "test_scan_steps_obey_the_row_limit": _broken(planning.ScansInOneStep),
    "test_large_slices_come_in_many_batches": _broken(planning.YieldsOneBatchPerSlice),
    "test_slices_are_small": _broken(planning.SendsLargeSlices, planning.SendsLargeSlicesReader),
    # slices
    "test_reading_a_slice_is_repeatable": _broken(planning.ReadsUpToNow, planning.ReadsUpToNowReader),
    "test_a_slice_can_be_read_in_another_process": _broken(
        planning.KeepsSlicesInItsProcess, planning.KeepsSlicesInItsProcessReader
    ),
    "test_an_abandoned_read_can_be_repeated": _broken(planning.ContinuesAbandonedReads),
    # restarts
    "test_restarts_lose_no_rows": _broken(lifecycle.ForgetsTheScan),
    "test_restarts_keep_the_order_of_keys": _broken(lifecycle.RenewsTheSnapshot),
    "test_a_step_can_be_planned_again": _broken(planning.ContinuesFromItsLastPlan),
    "test_a_crash_during_start_is_recovered": _broken(lifecycle.TreatsAnIntentAsAToken),
    "test_nothing_is_created_before_the_intent_is_saved": _broken(lifecycle.CreatesBeforeItSaves),
    "test_tokens_are_plain_json": _broken(lifecycle.TuplesInTokens),
    "test_tokens_hold_no_secrets": _broken(lifecycle.UriInTokens),
    # history
    "test_only_release_discards_history": _broken(lifecycle.ReleasesInAdvance),
    "test_release_may_be_skipped_repeated_and_late": _broken(lifecycle.RefusesOldTokens),
    "test_history_after_a_released_token_is_kept": _broken(lifecycle.ReleasesUpToNow),
    "test_lost_history_is_an_error": _broken(lifecycle.StartsFromTheOldestHistory),
    "test_released_history_is_discarded": _broken(lifecycle.NeverReleases),
    "test_changefeeds_on_one_source_are_independent": _broken(lifecycle.SharesItsSlot, lifecycle.SharesItsSlotHistory),
    "test_a_cursor_yields_the_changes_after_it": _broken(lifecycle.StartsNowInsteadOfAtTheCursor),
    "test_a_cursor_is_refused_when_changes_after_it_are_gone": _broken(lifecycle.StartsAtTheOldestHistory),
    # close and drop
    "test_close_may_be_called_twice": _broken(lifecycle.ClosesOnce),
    "test_nothing_stays_open_after_close": _broken(lifecycle.LeavesFilesOpen),
    "test_drop_may_be_repeated": _broken(lifecycle.DropsOnce),
    "test_drop_removes_everything_created": _broken(lifecycle.DropsNothing),
    "test_a_temporary_run_leaves_nothing_behind": _broken(lifecycle.OutlivesATemporaryRun),
    "test_created_lists_the_objects_of_every_changefeed": _broken(lifecycle.ListsItsOwnObjects),
    # outages
    "test_an_outage_is_a_retryable_error": _broken(lifecycle.TreatsOutagesAsFatal),
    "test_an_outage_loses_no_rows": _broken(lifecycle.SkipsAheadAfterAnOutage, lifecycle.SkipsAheadAfterAnOutageReader),
}
"""The registration that breaks each promise, by the name of the promise's test."""
