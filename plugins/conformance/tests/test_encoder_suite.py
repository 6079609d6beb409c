"""The suite asks an encoder for what it registers, and says why it asks for no more."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import dataclasses
from cdc_conformance.encoders import EncoderConformance
from cdc_conformance.reference.encoder import REFERENCE_ENCODER

class TestPart(EncoderConformance):
    encoder = dataclasses.replace(REFERENCE_ENCODER, {changes})
"""


@pytest.mark.parametrize(
    ("changes", "reasons", "passed"),
    [
        ("decoder=''", ["encoder 'reference' registers no decoder, with which this promise is seen to be kept"], 25),
        (
            "outputs=frozenset({'files'}), envelopes=frozenset({'bare'})",
            ["encoder 'reference' writes no messages, as it is proved here"],
            35,
        ),
        (
            "outputs=frozenset({'messages'}), envelopes=frozenset({'key_only'})",
            [
                "encoder 'reference' writes no files here",
                "encoder 'reference' writes no envelopes that show rows, as it is proved here",
                "encoder 'reference' writes no envelopes with updated, as it is proved here",
            ],
            25,
        ),
    ],
)
def test_what_an_encoder_does_not_register_is_skipped_with_the_reason(
    pytester: pytest.Pytester, changes: str, reasons: list[str], passed: int
) -> None:
    pytester.makepyfile(SUITE.format(changes=changes))
    result = pytester.runpytest_inprocess("-rs")
    counts = result.parseoutcomes()
    assert counts.keys() == {"passed", "skipped"}
    assert counts["passed"] >= passed
    for reason in reasons:
        result.stdout.fnmatch_lines([f"*{reason}*"])
