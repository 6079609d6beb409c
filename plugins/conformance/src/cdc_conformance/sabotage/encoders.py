"""Broken encoders. Each is the reference encoder with one mistake, and breaks one promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from cdc_conformance.encoders.suite import EncoderConformance
from cdc_conformance.reference.encoder import REFERENCE_ENCODER
from cdc_core import EncoderRegistration

__all__ = ["SABOTEURS", "SUITE", "ReferenceEncoderSuite"]


class ReferenceEncoderSuite(EncoderConformance):
    """The suite with the reference encoder and all capabilities."""

    encoder = REFERENCE_ENCODER
    capabilities = frozenset(EncoderConformance.known_capabilities)

    @pytest.fixture
    def unreachable_options(self) -> Mapping[str, str]:
        return {"service": "127.0.0.1:9"}


def _by(where: str, *, options: str = "", decoder: str = "") -> EncoderRegistration:
    """Return the registration of the reference encoder with the class *where* in `broken_encoders`."""
    home = f"{__package__}.broken_encoders.{where}"
    registration = dataclasses.replace(REFERENCE_ENCODER, name="saboteur", encoder=home)
    if options:
        registration = dataclasses.replace(registration, options=f"{home}{options}")
    return dataclasses.replace(registration, decoder=f"{home}{decoder}") if decoder else registration


SUITE = ReferenceEncoderSuite
SABOTEURS: Mapping[str, EncoderRegistration] = {
    "test_numbers_come_back_exactly": _by("values:ConvertsIntegersToDoubles"),
    "test_texts_come_back_exactly": _by("values:TrimsTexts"),
    "test_bytes_come_back_exactly": _by("values:TruncatesBytesAtZero"),
    "test_dates_and_times_come_back_exactly": _by("values:WrapsMidnight"),
    "test_plain_values_come_back": _by("values:WritesLabelsInAscii"),
    "test_nested_values_come_back": _by("values:ReformatsJson"),
    "test_nulls_come_back_as_nulls": _by("values:WritesNullAsNaN"),
    "test_an_unknown_value_is_not_null": _by("values:WritesNullForUnknownValues"),
    "test_encode_errors_name_table_column_and_key": _by("values:OmitsTheKeyOfErrors"),
    "test_a_json_null_differs_from_an_sql_null": _by("values:MergesNulls"),
    "test_columns_keep_their_names": _by("values:LowercasesColumnNames"),
    "test_every_registered_envelope_can_be_written": _by("messages:LacksAnEnvelope"),
    "test_there_is_one_message_for_each_row": _by("messages:ReturnsTextKeys"),
    "test_messages_have_the_times_and_topic_of_their_rows": _by("messages:UsesTheFirstTimeForAll"),
    "test_messages_have_the_order_of_their_rows": _by("messages:SortsTransactions"),
    "test_an_empty_batch_gives_no_messages": _by("messages:NeedsAFirstRow"),
    "test_slices_of_a_batch_give_the_same_messages": _by("messages:IgnoresTheOffset"),
    "test_the_same_rows_give_the_same_bytes": _by("messages:NumbersSchemaObjects"),
    "test_other_processes_write_the_same_bytes": _by("messages:IteratesOverASet"),
    "test_messages_do_not_depend_on_earlier_batches": _by("messages:IgnoresTheDatabase"),
    "test_rows_are_not_modified": _by("messages:ModifiesTheBatch"),
    "test_messages_are_not_modified_later": _by("messages:ReusesItsBuffer"),
    "test_a_delete_names_the_deleted_row": _by("envelopes:WritesNoTombstones"),
    "test_values_under_a_delete_are_ignored": _by("envelopes:ReadsValuesUnderNulls"),
    "test_diff_adds_the_row_before": _by("envelopes:ShowsTheRowAfterTwice"),
    "test_updated_is_exact": _by("envelopes:TruncatesTimes"),
    "test_mvcc_timestamps_are_exact": _by("envelopes:UsesTheTimeOfTheScan"),
    "test_an_unknown_mvcc_timestamp_equals_updated": _by("envelopes:WritesZeroForUnknownTimes"),
    "test_the_key_in_the_value_is_the_key": _by("envelopes:PutsTheKeyInTableOrder"),
    "test_the_topic_in_the_value_is_the_topic": _by("envelopes:WritesTheTopicInAscii"),
    "test_equal_keys_have_equal_bytes": _by("keys:SpacesKeysOfDeletes"),
    "test_different_keys_have_different_bytes": _by("keys:LowercasesKeys"),
    "test_composite_keys_have_key_order": _by("keys:SortsKeyColumns"),
    "test_the_column_that_key_column_names_is_the_key": _by("keys:KeepsThePrimaryKey"),
    "test_keys_do_not_depend_on_other_columns": _by("keys:AddsTheVersionToKeys"),
    "test_rows_are_encoded_with_the_schema_of_their_batch": _by("keys:CachesTheFirstVersion"),
    "test_a_resolved_mark_has_the_exact_timestamp": _by("files:DropsTheLogicalCounter"),
    "test_a_resolved_mark_differs_from_every_row": _by("files:FindsMarksInRows", decoder="Reader"),
    "test_the_same_resolved_mark_has_the_same_bytes": _by("files:NumbersMarks"),
    "test_a_file_holds_the_rows_of_all_writes_in_order": _by("files:DropsRowsAfter256"),
    "test_a_file_without_rows_can_be_read": _by("files:EndsFilesWithANewline"),
    "test_a_truncated_file_is_detected": _by("files:AcceptsTruncatedFiles", decoder="Reader"),
    "test_open_files_do_not_mix": _by("files:SharesOneBuffer"),
    "test_reading_by_columns_gives_the_rows_of_the_file": _by("bad_rows:SkipsDeletedRows", decoder="Reader"),
    "test_files_compressed_by_the_encoder_can_be_read": dataclasses.replace(
        _by("bad_rows:HidesItsCompression"), compresses=True
    ),
    "test_bad_rows_are_found_by_bisection": _by("bad_rows:RemembersBadBatches"),
    "test_a_failed_write_adds_nothing_to_a_file": _by("bad_rows:WritesLineByLine"),
    "test_a_scans_only_format_refuses_deletes_and_marks": dataclasses.replace(
        _by("bad_rows:AcceptsDeletes", decoder="Reader"), scans_only=True, outputs=frozenset({"files"})
    ),
    "test_the_file_extension_begins_with_a_dot": _by("files:OmitsTheDot"),
    "test_the_constructor_has_no_side_effects": _by("packaging:ResolvesAHostName"),
    "test_a_check_changes_nothing": _by("packaging:NumbersCheckedTables"),
    "test_a_check_refuses_a_column_by_name": _by("packaging:RefusesWithoutNames"),
    "test_options_are_documented": _by("packaging:HasAnUndocumentedOption", options="Options"),
    "test_wrong_options_are_refused": _by("packaging:AcceptsAnyOption", options="Options"),
    "test_secrets_are_not_shown": _by("packaging:ShowsItsPassword"),
    "test_contexts_can_be_pickled": _by("packaging:StoresAFunctionInItsOptions", options="Options"),
    "test_registration_and_options_import_no_client_library": _by("heavy_options:ImportsALibrary", options="Options"),
    "test_the_encoder_imports_neither_pytest_nor_pyspark": _by("tested_inside:ImportsPytest"),
    "test_an_unreachable_service_is_retryable": _by("packaging:RaisesTerminalErrors"),
    "test_memory_is_a_multiple_of_the_batch": _by("packaging:CopiesForEachRow"),
    "test_encoded_batches_are_released": _by("packaging:CachesValues"),
    "test_no_thread_or_descriptor_leaks": _by("packaging:LeaksADescriptor"),
}
