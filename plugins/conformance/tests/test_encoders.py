"""The suite of encoders tests what an encoder registers, opens it as a changefeed does, and compares rows exactly."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from cdc_conformance.encoders import messages
from cdc_conformance.encoders.comparison import differences, expected_rows, same
from cdc_conformance.encoders.form import Form
from cdc_conformance.encoders.rig import EncoderRig, pairs_of
from cdc_conformance.promises import DoesNotApply
from cdc_conformance.reference.encoder import REFERENCE_ENCODER
from cdc_conformance.rows import INT8, START, TEXT, Change, rows, table

from cdc_core import ColumnType, ConfigError, Envelope, Kind, Op, OptionError, PluginLoadError, Timestamp

pytest_plugins = ["pytester"]

SUITE = """
import dataclasses
from cdc_conformance.encoders import EncoderConformance
from cdc_conformance.reference.encoder import REFERENCE_ENCODER

class TestPart(EncoderConformance):
    encoder = dataclasses.replace(REFERENCE_ENCODER, {changes})
"""
FILES = "test_a_truncated_file_is_detected"
KEYS = "test_equal_keys_have_equal_bytes"
MARKS = "test_the_same_resolved_mark_has_the_same_bytes"
NUMBERS = "test_numbers_come_back_exactly"
SCANS = "test_a_scans_only_format_refuses_deletes_and_marks"


@pytest.mark.parametrize(
    ("changes", "collected", "left_out"),
    [
        ("", {FILES, KEYS, MARKS, NUMBERS}, {SCANS}),
        ("decoder=''", {KEYS, MARKS}, {FILES, NUMBERS, SCANS}),
        ("outputs=frozenset({'files'})", {FILES, MARKS, NUMBERS}, {KEYS, SCANS}),
        ("outputs=frozenset({'messages'})", {KEYS, MARKS, NUMBERS}, {FILES, SCANS}),
        ("scans_only=True", {FILES, KEYS, NUMBERS, SCANS}, {MARKS}),
    ],
)
def test_promises_that_do_not_apply_are_not_collected(
    pytester: pytest.Pytester, changes: str, collected: set[str], left_out: set[str]
) -> None:
    pytester.makepyfile(SUITE.format(changes=changes))
    result = pytester.runpytest_inprocess("--collect-only", "-q")
    found = {line.rpartition("::")[2] for line in result.outlines if "::" in line}
    assert collected <= found
    assert not left_out & found


@pytest.mark.parametrize("changes", ["decoder=''", "outputs=frozenset({'files'}), envelopes=frozenset({'bare'})"])
def test_promises_need_nothing_that_an_encoder_does_not_register(pytester: pytest.Pytester, changes: str) -> None:
    pytester.makepyfile(SUITE.format(changes=changes))
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] >= 25


def test_an_encoder_that_ignores_the_compression_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE.format(changes="compresses=True"))
    result = pytester.runpytest_inprocess("-k", "test_files_compressed_by_the_encoder_can_be_read")
    result.stdout.fnmatch_lines(["*the compressions none, gzip and zstd give 1 different files, not 3*"])


def test_forms_that_an_encoder_does_not_write_are_reported_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE.format(changes="envelopes=frozenset({'key_only'})"))
    pytester.runpytest_inprocess("--cdc-report", "report.json")
    (suite,) = json.loads((pytester.path / "report.json").read_text())["suites"]
    assert {name for name, count in suite["counts"].items() if count} == {"passed", "not_declared"}
    assert suite["counts"]["passed"] >= 25
    reasons = {promise["reason"] for promise in suite["promises"]}
    for said in ("writes no files in this", "writes no form with rows in", "writes no form with updated in"):
        assert any(f"encoder 'reference' {said}" in (reason or "") for reason in reasons), said


ORDERS = table("orders", {"id": INT8, "note": TEXT})


@pytest.mark.parametrize(
    ("changes", "options", "error"),
    [
        ({"encoder": "nowhere:Encoder"}, {}, PluginLoadError),
        ({}, {"no_such_option": 1}, OptionError),
        ({}, {"service": "127.0.0.1:9"}, ConfigError),
    ],
)
def test_an_encoder_without_a_form_that_works_raises_its_error(
    changes: dict[str, Any], options: dict[str, Any], error: type[ConfigError]
) -> None:
    registration = dataclasses.replace(REFERENCE_ENCODER, **changes)
    with pytest.raises(error):
        EncoderRig(registration, options=options, outputs={"messages"}).some("diff", rows=True)


def test_a_form_that_an_encoder_does_not_write_does_not_apply() -> None:
    with pytest.raises(DoesNotApply, match="writes no files"):
        EncoderRig(REFERENCE_ENCODER, options={}, outputs={"messages"}).some(output="files")


def test_another_process_that_ended_is_reported_and_replaced() -> None:
    rig, batch = EncoderRig(REFERENCE_ENCODER, options={}, outputs={"messages"}), messages.history(ORDERS)
    form = rig.form("messages")
    messages.PEER.process.kill()
    with pytest.raises(AssertionError, match="the other process ended with exit code -9"):
        messages.pairs_of_other_process(rig.feed(form), batch, "orders")
    found = messages.pairs_of_other_process(rig.feed(form), batch, "orders")
    assert found == pairs_of(rig.encoder(form).encode(batch, topic="orders"))


WRAPPED = Form(output="messages", envelope=Envelope(updated=True))
BARE = Form(output="files", envelope=Envelope(name="bare"))


@pytest.mark.parametrize(
    ("kind", "wanted", "found", "is_same"),
    [
        (Kind.FLOAT, math.nan, math.nan, True),
        (Kind.FLOAT, 0.0, -0.0, False),
        (Kind.FLOAT, 1.0, 1, False),
        (Kind.INT, 1, True, False),
        (Kind.INT, 1, 1.0, False),
        (Kind.INT, 0, None, False),
        (Kind.DECIMAL, "1.50", "1.5", False),
        (Kind.STRING, "null", None, False),
        (Kind.STRING, "e\u0301", "\u00e9", False),
        (Kind.JSON, '{"a": 1.50, "b": []}', '{"b":[ ],"a":1.5}', True),
        (Kind.JSON, '{"a": 12345678901234567890}', '{"a": 12345678901234567891}', False),
        (Kind.JSON, '{"a": 1, "a": 2}', '{"a": 2}', False),
        (Kind.JSON, '{"a": 1}', {"a": 1}, False),
        (Kind.JSON, '"1"', "1", False),
        (Kind.ARRAY, "[1, null]", "[1,null]", True),
        (Kind.ARRAY, "[1, null]", "[null, 1]", False),
    ],
)
def test_values_are_the_same_if_they_are_equal_exactly(kind: Kind, wanted: Any, found: Any, *, is_same: bool) -> None:
    assert same(ColumnType(kind=kind, source=""), wanted, found) is is_same


def test_a_difference_names_form_row_and_column() -> None:
    batch = rows(ORDERS, [Change({"id": 1, "note": "a"}), Change({"id": 2, "note": "b"})])
    wanted = expected_rows(batch, "orders", WRAPPED)
    assert differences(ORDERS, WRAPPED, wanted, wanted) == ""
    where = "envelope 'wrapped' with updated, as messages: "
    row = f"{where}row 1 of table public.orders (key (2,)): "
    first, second = wanted
    changed = {
        row + "in the row, column note (text) is 'c', not 'b'": {"after": {"id": 2, "note": "c"}},
        row + "the row has the columns ['id'], not ['id', 'note']": {"after": {"id": 2}},
        row + "the row is None, not {'id': 2, 'note': 'b'}": {"after": None},
        row + "the key is (3,), not (2,)": {"key": (3,)},
        row + "the key is (), not (2,)": {"key": ()},
        row + f"updated is '{START}', not '{Timestamp(START.wall + 1)}'": {"updated": START},
    }
    for difference, change in changed.items():
        assert differences(ORDERS, WRAPPED, wanted, [first, dataclasses.replace(second, **change)]) == difference
    assert differences(ORDERS, WRAPPED, wanted, [first]) == where + "rows written: 2, rows read: 1"


def test_a_delete_may_be_its_key_and_nulls_only_in_bare() -> None:
    (delete,) = expected_rows(rows(ORDERS, [Change({"id": 1}, op=Op.DELETE)]), "orders", BARE)
    shown = dataclasses.replace(delete, after={"id": 1, "note": None})
    assert differences(ORDERS, BARE, [delete], [shown]) == ""
    assert differences(ORDERS, BARE, [delete], [delete]) == ""
    assert "column id" in differences(
        ORDERS, BARE, [delete], [dataclasses.replace(delete, after={"id": 2, "note": None})]
    )
    (delete,) = expected_rows(rows(ORDERS, [Change({"id": 1}, op=Op.DELETE)]), "orders", WRAPPED)
    assert "the row is {'id': 1, 'note': None}, not None" in differences(
        ORDERS, WRAPPED, [delete], [dataclasses.replace(delete, after={"id": 1, "note": None})]
    )
