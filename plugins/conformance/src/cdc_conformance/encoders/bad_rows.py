"""Rows with a value that cannot be written: they are found by giving the others without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from cdc_conformance.encoders.comparing import differences, rows_of
from cdc_conformance.encoders.rig import EncoderRig, Form, body_of, pairs_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_core import EncodeError, Encoder, RowBatch

__all__ = ["BadRows"]

_COLUMN = "peculiar"
_BAD = (3, 8)
_ROWS = 11


@dataclass(frozen=True, slots=True)
class _Case:
    """A form, and a batch with two rows that it cannot write."""

    form: Form
    batch: RowBatch
    topic: str

    def good(self) -> list[RowBatch]:
        """Return the runs of rows that can be written."""
        ends = (*_BAD, _ROWS)
        starts = (0, *(number + 1 for number in _BAD))
        return [self.batch.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


class BadRows:
    """The engine gives a batch that failed again in parts, to the same encoder, until the bad rows are alone."""

    def test_a_bad_row_can_be_found_by_halves(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """`encode` fails for each part that has a bad row, writes each part that has none, and forgets the failure.

        The parts give the bytes that they give to an encoder which never failed. When this fails, look for state that
        is changed before the last value is known to be right.
        """
        for case in _cases(rig, samples, topic, output="messages"):
            encoder, other = rig.encoder(case.form), rig.encoder(case.form)
            found: list[int] = []
            pairs = _by_halves(encoder, case.batch, 0, case.topic, found)
            assert found == list(_BAD), f"{case.form}: rows {_BAD} cannot be written, but by halves {found} were found"
            wanted = [pair for part in case.good() for pair in pairs_of(other.encode(part, topic=case.topic))]
            assert pairs == wanted, f"{case.form}: after a bad row its neighbours have other bytes than without it"

    def test_a_write_that_fails_adds_nothing_to_a_file(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """A body whose `write` raised EncodeError goes on, and has none of the rows of that call.

        Given again in parts, the good ones are in the file once, in order. When this fails, look for rows that are put
        into the block one by one, and for a header or a block that the failed call has begun.
        """
        for case in _cases(rig, samples, topic, output="files"):
            body = rig.encoder(case.form).open_body(case.topic)
            with pytest.raises(EncodeError):
                body.write(case.batch)
            parts = [body.write(case.good()[0])]
            with pytest.raises(EncodeError):
                body.write(case.batch.slice(1))
            written = b"".join(map(bytes, [*parts, *map(body.write, case.good()[1:]), body.finish()]))
            found = list(rig.decoder(case.form).file(case.batch.schema, written))
            wanted = [row for part in case.good() for row in rows_of(part, case.topic, case.form)]
            said = differences(case.batch.schema, case.form, wanted, found)
            assert not said, f"two writes to a file failed and their good rows were written again: {said}"
            plain = body_of(rig.encoder(case.form), case.good(), case.topic)
            assert len(written) == len(plain), (
                f"{case.form}: a file in which two writes failed has {len(written)} bytes, without them {len(plain)}"
            )


def _cases(rig: EncoderRig, samples: Sequence[Sample], topic: str, *, output: str) -> Iterator[_Case]:
    """Yield each form with rows that it cannot write; skips the test when there is none."""
    none = True
    for form in rig.some(rows=True, output=output):
        case = next(_refused(rig, form, samples, topic), None)
        if case is not None:
            none = False
            yield case
    if none:
        pytest.skip("the encoder writes every value of the samples: nothing can be seen of rows that it refuses")


def _refused(rig: EncoderRig, form: Form, samples: Sequence[Sample], topic: str) -> Iterator[_Case]:
    for sample in rig.accepted(form, samples, topic):
        schema = table(f"bad_{sample.name}", {"id": INT8, _COLUMN: sample.type})
        for value in sample.odd:
            values = [value if number in _BAD else sample.ordinary[0] for number in range(_ROWS)]
            batch = rows(schema, [Change({"id": number, _COLUMN: each}) for number, each in enumerate(values)])
            encoder, name = rig.encoder(form), f"{topic}_bad_{sample.name}"
            one = batch.slice(_BAD[0], 1)
            try:
                body_of(encoder, [one], name) if form.output == "files" else encoder.encode(one, topic=name)
            except EncodeError:
                yield _Case(form, batch, name)


def _by_halves(encoder: Encoder, batch: RowBatch, first: int, topic: str, bad: list[int]) -> list[object]:
    """Return the messages of all rows but the bad ones, whose places are put into *bad*, beginning with *first*."""
    try:
        return list(pairs_of(encoder.encode(batch, topic=topic)))
    except EncodeError:
        if len(batch) == 1:
            bad.append(first)
            return []
    half = len(batch) // 2
    left = _by_halves(encoder, batch.slice(0, half), first, topic, bad)
    return left + _by_halves(encoder, batch.slice(half), first + half, topic, bad)
