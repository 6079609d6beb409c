"""Broken encoders: each is the reference encoder with one mistake, and fails the test of one promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import pytest

from cdc_conformance.encoders.suite import EncoderConformance
from cdc_conformance.reference.encoder import REFERENCE_ENCODER
from cdc_core import EncoderRegistration

__all__ = ["SABOTEURS", "SUITE", "ReferenceEncoderSuite"]


class ReferenceEncoderSuite(EncoderConformance):
    """The suite with the reference encoder, every capability declared."""

    encoder = REFERENCE_ENCODER

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        return self.known_capabilities.keys()

    @pytest.fixture
    def unreachable_options(self) -> Mapping[str, str]:
        return {"service": "127.0.0.1:9"}


def _by(where: str, *, options: str = "", decoder: str = "") -> EncoderRegistration:
    """Return the reference's registration with another class, in a module of `broken_encoders`."""
    home = f"{__package__}.broken_encoders.{where}"
    registration = dataclasses.replace(REFERENCE_ENCODER, name="saboteur", target=home)
    if options:
        registration = dataclasses.replace(registration, options=f"{home}{options}")
    return dataclasses.replace(registration, decoder=f"{home}{decoder}") if decoder else registration


SUITE = ReferenceEncoderSuite
SABOTEURS: Mapping[str, EncoderRegistration] = {
    "test_numbers_come_back_exactly": _by("values:PassesIntegersThroughDoubles"),
    "test_texts_come_back_to_the_last_character": _by("values:TrimsTexts"),
    "test_bytes_come_back": _by("values:EndsBytesAtZero"),
    "test_moments_come_back_exactly": _by("values:WrapsMidnight"),
    "test_plain_values_come_back": _by("values:SpeaksAscii"),
    "test_nested_values_come_back": _by("values:ParsesJson"),
    "test_nulls_come_back_as_nulls": _by("values:TakesNaNForNull"),
    "test_a_value_that_cannot_be_written_is_refused_by_name": _by("values:HidesTheKeyOfErrors"),
    "test_a_json_null_is_no_sql_null": _by("values:MixesUpNulls"),
    "test_columns_keep_their_names": _by("values:FoldsColumnNames"),
    "test_every_envelope_that_is_registered_can_be_written": _by("messages:LacksAnEnvelope"),
    "test_there_is_one_message_for_each_row": _by("messages:GivesTextsAsKeys"),
    "test_messages_carry_the_times_of_their_rows": _by("messages:HasOneTimeForAll"),
    "test_messages_stand_in_the_order_of_their_rows": _by("messages:SortsTransactions"),
    "test_an_empty_batch_gives_no_messages": _by("messages:NeedsAFirstRow"),
    "test_a_part_of_a_batch_gives_its_part_of_the_messages": _by("messages:ForgetsTheOffset"),
    "test_the_same_rows_give_the_same_bytes": _by("messages:CountsSchemaObjects"),
    "test_other_processes_write_the_same_bytes": _by("messages:PutsColumnsInAnyOrder"),
    "test_earlier_batches_leave_no_trace": _by("messages:ForgetsTheDatabase"),
    "test_the_rows_stay_as_they_are": _by("messages:WritesIntoTheBatch"),
    "test_messages_stay_as_they_are": _by("messages:UsesItsBufferAgain"),
    "test_a_delete_says_which_row_is_gone": _by("envelopes:KnowsNoTombstones"),
    "test_what_stands_under_a_delete_is_ignored": _by("envelopes:BelievesInGhosts"),
    "test_diff_carries_the_row_before": _by("envelopes:ShowsTheRowTwice"),
    "test_updated_is_exact": _by("envelopes:CutsTimes"),
    "test_mvcc_timestamps_are_exact": _by("envelopes:TakesTheTimeOfTheScan"),
    "test_an_unknown_mvcc_timestamp_is_that_of_updated": _by("envelopes:KnowsNoTimeOfItsOwn"),
    "test_the_key_in_the_value_is_the_key": _by("envelopes:PutsTheKeyInTableOrder"),
    "test_the_topic_in_the_value_is_the_topic": _by("envelopes:DescribesTheTopicInAscii"),
    "test_equal_keys_have_equal_bytes": _by("keys:SpacesTheKeysOfDeletes"),
    "test_different_keys_have_different_bytes": _by("keys:FoldsKeys"),
    "test_composite_keys_stand_in_key_order": _by("keys:SortsKeyColumns"),
    "test_keys_outlive_changes_of_other_columns": _by("keys:MarksKeysWithTheVersion"),
    "test_a_new_version_of_a_table_begins_with_its_first_row": _by("keys:RemembersTheFirstVersion"),
    "test_a_resolved_mark_says_its_timestamp_exactly": _by("files:LosesTheCounter"),
    "test_a_resolved_mark_is_told_from_every_row": _by("files:FindsMarksAnywhere", decoder="Reader"),
    "test_the_same_resolved_mark_has_the_same_bytes": _by("files:CountsMarks"),
    "test_a_file_holds_the_rows_of_all_writes_in_order": _by("files:ForgetsTheRest"),
    "test_a_file_without_rows_can_be_read": _by("files:EndsFilesWithALine"),
    "test_a_file_that_is_cut_off_is_seen_to_be": _by("files:IsContentWithLess", decoder="Reader"),
    "test_files_that_are_open_together_do_not_mix": _by("files:PoolsBodies"),
    "test_reading_by_columns_gives_the_rows_of_the_file": _by("bad_rows:ReadsWhatIsThere", decoder="Reader"),
    "test_a_file_that_is_compressed_inside_can_be_read": _by("bad_rows:CompressesOutOfSight"),
    "test_a_bad_row_can_be_found_by_halves": _by("bad_rows:RemembersBadBatches"),
    "test_a_write_that_fails_adds_nothing_to_a_file": _by("bad_rows:WritesLineByLine"),
    "test_a_format_of_scans_refuses_all_else": dataclasses.replace(
        _by("bad_rows:TakesScansForRows", decoder="Reader"), scans_only=True, outputs=frozenset({"files"})
    ),
    "test_the_extension_of_files_begins_with_a_dot": _by("files:ForgetsTheDot"),
    "test_the_constructor_has_no_side_effects": _by("packaging:LooksUpItsHost"),
    "test_a_check_changes_nothing": _by("packaging:NumbersCheckedTables"),
    "test_a_check_refuses_a_column_by_name": _by("packaging:RefusesWithoutNames"),
    "test_options_are_documented": _by("packaging:SaysNothingOfItsOption", options="Options"),
    "test_wrong_options_are_refused": _by("packaging:AcceptsAnyOption", options="Options"),
    "test_secrets_are_not_shown": _by("packaging:ShowsItsPassword"),
    "test_what_encoders_are_built_from_survives_pickle": _by("packaging:WorksOutItsOptions", options="Options"),
    "test_imports_are_light": _by("tested_inside:BringsItsTests"),
    "test_a_service_out_of_reach_is_waited_for": _by("packaging:GivesUpAtOnce"),
    "test_memory_is_a_multiple_of_the_batch": _by("packaging:CopiesForEachRow"),
    "test_nothing_is_kept_of_what_was_encoded": _by("packaging:RemembersValues"),
    "test_no_thread_or_descriptor_is_left_behind": _by("packaging:OpensAFileForEachMark"),
}
