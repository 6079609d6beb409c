"""The suite tests what an encoder registers, and reports what it does not test."""

from __future__ import annotations

import json

import pytest

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
