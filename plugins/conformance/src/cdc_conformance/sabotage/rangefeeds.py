"""Broken rangefeeds: each is the simulated database with one mistake, and fails exactly one promise's test."""

from __future__ import annotations

from cdc_conformance.sabotage import rangefeed_lives as lives
from cdc_conformance.sabotage import rangefeed_rows as rows
from cdc_conformance.sabotage import rangefeed_steps as steps
from cdc_conformance.sabotage.rangefeed_edits import Editor
from cdc_conformance.sabotage.rangefeed_suite import SimulatedSuite
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_core import RangefeedRegistration

__all__ = ["SABOTEURS", "SUITE"]

SUITE = SimulatedSuite

_BROKEN: dict[str, type[Editor]] = {
    # before the first step
    "test_the_constructor_touches_nothing": lives.OpensInItsConstructor,
    "test_check_changes_nothing": lives.PreparesInCheck,
    "test_check_names_a_table_that_is_missing": lives.ChecksNoTables,
    "test_check_names_a_source_that_is_out_of_reach": lives.RaisesWhatItsClientRaises,
    "test_schemas_describe_the_tables": rows.KeylessSchemas,
    "test_options_are_documented": lives.Terse,
    "test_secrets_are_masked": lives.ShowsItsUri,
    "test_metrics_are_finite_numbers": lives.KnowsNoNumber,
    # the initial scan
    "test_initial_scan_yields_every_row_once": rows.ReadsChunkEndsTwice,
    "test_scanned_rows_are_marked_as_scanned": rows.ScansAsInserts,
    "test_without_an_initial_scan_only_later_changes_arrive": rows.AlwaysScans,
    "test_empty_tables_are_resolved": steps.IgnoresEmptyTables,
    "test_scan_progress_rises_until_there_is_none": steps.CountsDown,
    "test_rows_changed_during_the_scan_arrive_in_order": rows.ScansTheLastChunkWithoutSnapshot,
    "test_nothing_is_missed_between_scan_and_log": rows.ForgetsTransactionsOpenAtTheStart,
    # the log
    "test_every_committed_version_arrives": rows.KeepsTheNewestTwentyVersions,
    "test_versions_of_a_key_arrive_in_order": rows.DeletesLast,
    "test_nothing_of_a_rolled_back_transaction_arrives": rows.ReadsIntents,
    "test_a_long_transaction_arrives_when_it_commits": rows.ForgetsLongTransactions,
    "test_all_rows_of_a_transaction_have_one_timestamp": rows.CountsRowsOfATransaction,
    "test_ops_say_what_happened": rows.InsertsOnly,
    "test_a_dropped_table_ends_the_feed": steps.GoesOnWithoutTheTable,
    # rows
    "test_before_is_the_version_that_was_committed_before": rows.BeforeIsAfter,
    "test_there_is_no_before_unless_it_is_asked_for": rows.AlwaysBefore,
    "test_a_delete_has_no_row_after_it": rows.DeletesWithARow,
    "test_a_delete_carries_the_key": rows.DeletesWithoutKey,
    "test_a_key_is_the_rows_own_and_never_null": rows.UpdatesWithoutKey,
    "test_values_arrive_as_they_were_written": rows.EmptyIsNull,
    "test_a_large_value_that_did_not_change_is_there": rows.DropsUnchangedLargeValues,
    "test_mvcc_is_never_after_updated": rows.MvccAfterUpdated,
    "test_mvcc_of_a_scanned_row_is_when_it_was_committed": rows.ScannedRowsAreNew,
    "test_columns_have_the_declared_types": rows.WideOps,
    "test_rows_carry_the_schema_they_were_written_with": rows.FirstShapeForEver,
    "test_schema_versions_rise_over_restarts": rows.NumbersShapesByWidth,
    # marks
    "test_marks_come_after_the_rows_of_their_slice": steps.MarksFirst,
    "test_rows_are_at_or_below_the_mark_of_their_span": steps.MarksBelowTheLastRow,
    "test_rows_are_above_the_marks_of_earlier_steps": steps.BeginsWhereTheLastStepEnded,
    "test_no_row_is_below_its_slices_lower_bound": steps.BoundsTooHigh,
    "test_resolved_never_moves_back": steps.ResolvesAnewAfterARestart,
    "test_nothing_is_resolved_before_the_scan_is_complete": steps.MarksWholeTables,
    "test_a_resolved_timestamp_is_a_consistent_cut": steps.ResolvesQuietTablesAhead,
    "test_resolving_now_means_that_all_is_there": steps.ClockBeforeTheLastCommit,
    "test_an_idle_source_goes_on_resolving": steps.ResolvesCommitsOnly,
    "test_nothing_to_do_gives_the_token_back": steps.CountsItsTurns,
    "test_no_key_is_in_two_slices_of_a_step": steps.FillsUpWithTheFirstSlice,
    # sizes
    "test_a_step_of_the_log_has_about_the_rows_it_may": steps.UnlimitedRows,
    "test_a_step_of_the_log_has_about_the_bytes_it_may": steps.UnlimitedBytes,
    "test_a_step_of_the_scan_has_about_the_rows_it_may": steps.ScansAtOnce,
    "test_a_large_slice_comes_in_many_batches": steps.OneBatchASlice,
    "test_slices_are_small": steps.CarriesThingsAlong,
    # reading
    "test_a_slice_reads_the_same_again": steps.ReadsUpToNow,
    "test_a_slice_can_be_read_in_another_process": steps.RemembersItsSlices,
    "test_reading_can_be_given_up": steps.GoesOnWhereItWasLeft,
    # crashes
    "test_a_restart_after_any_step_loses_nothing": lives.ForgetsTheScan,
    "test_order_holds_over_restarts": lives.ScansAsOfTheRestart,
    "test_a_step_can_be_planned_again": steps.PlansOn,
    "test_a_crash_while_starting_is_recovered": lives.TakesAnIntentForAToken,
    "test_nothing_is_created_before_the_intent_is_saved": lives.CreatesBeforeItSaves,
    "test_tokens_are_plain_json": lives.TuplesInTokens,
    "test_tokens_hold_no_secret": lives.UriInTokens,
    # letting go
    "test_nothing_but_release_lets_history_go": lives.ReleasesWhatItHasRead,
    "test_release_may_be_skipped_repeated_and_late": lives.RefusesLateReleases,
    "test_what_follows_a_released_token_is_kept": lives.ReleasesUpToNow,
    "test_history_that_is_gone_is_never_silently_missing": lives.GoesOnWithWhatIsLeft,
    "test_released_history_is_let_go": lives.NeverReleases,
    "test_changefeeds_of_one_source_do_not_disturb_each_other": lives.SharesItsSlot,
    # the end
    "test_close_may_be_called_twice": lives.ClosesOnce,
    "test_nothing_stays_open_after_close": lives.LeavesFilesOpen,
    "test_drop_may_be_repeated": lives.DropsOnce,
    "test_drop_removes_all_that_was_created": lives.DropsNothing,
    "test_an_outage_is_a_retryable_error": lives.GivesUpAtOnce,
    "test_nothing_is_lost_over_an_outage": lives.SkipsWhatAnOutageHeldUp,
}


def _registration(cls: type[Editor]) -> RangefeedRegistration:
    options = lives.TerseOptions if cls is lives.Terse else SimulatedOptions
    return RangefeedRegistration(
        name="simulated",
        target=f"{cls.__module__}:{cls.__name__}",
        options=f"{options.__module__}:{options.__name__}",
        schemes=("simulated",),
        summary="A broken source",
        writer="cdc_conformance.simulated.writer:SimulatedWriter",
    )


SABOTEURS = {test: _registration(cls) for test, cls in _BROKEN.items()}
"""By the test of the promise that each breaks."""
