"""Promises about rows that cannot be encoded, and about services without which none can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cdc_conformance.encoders.comparison import differences, expected_rows
from cdc_conformance.encoders.form import DECODER, FILES, MESSAGES, Form
from cdc_conformance.encoders.messages import history, written
from cdc_conformance.encoders.rig import EncoderRig, body_of, pairs_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import applies_if, does_not_apply, requires
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ConfigError, EncodeError, Encoder, RetryableError, RowBatch

__all__ = ["BadRows", "Services"]

_COLUMN = "peculiar"
_BAD = (3, 8)
_ROWS = 11
_ORDERS = table("orders", {"id": INT8, "note": TEXT})


@dataclass(frozen=True, slots=True)
class _Case:
    """A form, and a batch with two rows that it cannot encode."""

    form: Form
    batch: RowBatch
    topic: str

    def good(self) -> list[RowBatch]:
        """Return the runs of rows that can be encoded."""
        ends = (*_BAD, _ROWS)
        starts = (0, *(number + 1 for number in _BAD))
        return [self.batch.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


class BadRows:
    """The engine divides a batch that failed and passes the parts to the same encoder, until the bad rows are alone."""

    @applies_if(MESSAGES)
    def test_bad_rows_are_found_by_bisection(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """`encode` fails for parts with a bad row. Others have the same bytes as from an encoder that never failed.

        A failure must not affect later batches. Look for state that is changed before the last value is encoded.
        """
        for case in _cases(rig, samples, topic, output="messages"):
            encoder, other = rig.encoder(case.form), rig.encoder(case.form)
            found: list[int] = []
            pairs = _bisect(encoder, case.batch, 0, case.topic, found)
            assert found == list(_BAD), f"{case.form}: rows {_BAD} cannot be encoded, but bisection found {found}"
            wanted = [pair for part in case.good() for pair in pairs_of(other.encode(part, topic=case.topic))]
            assert pairs == wanted, f"{case.form}: after a bad row, the other rows have other bytes than without it"

    @applies_if(DECODER)
    @applies_if(FILES)
    def test_a_failed_write_adds_nothing_to_a_file(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """A body whose `write` raised EncodeError accepts further rows, and contains no row of the failed call.

        When the engine passes the good rows again, each is in the file once, in order. Look for rows that are added to
        a block one by one, and for a header or block that the failed call started.
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
            wanted = [row for part in case.good() for row in expected_rows(part, case.topic, case.form)]
            difference = differences(case.batch.schema, case.form, wanted, found)
            assert not difference, f"after two failed writes and their good rows again: {difference}"
            plain = body_of(rig.encoder(case.form), case.good(), case.topic)
            assert len(written) == len(plain), (
                f"{case.form}: a file has {len(written)} bytes after two failed writes, and {len(plain)} without them"
            )


class Services:
    """Encoders with the capability `service`."""

    @requires("service", "only a service can be unreachable")
    def test_an_unreachable_service_is_retryable(
        self, rig: EncoderRig, unreachable_options: Mapping[str, Any], topic: str
    ) -> None:
        """While the service is unreachable, `check` raises ConfigError, and rows and marks raise RetryableError.

        The engine repeats the step until the service is available. Any other error ends the changefeed. Look at the
        errors of the client that are not translated.
        """
        assert unreachable_options, "override the fixture unreachable_options with options of an unreachable service"
        (form, *_) = rig.some()
        encoder = rig.encoder(form, **unreachable_options)
        with pytest.raises(ConfigError):
            encoder.check([(_ORDERS, topic)])
        for what in ("rows", "a resolved mark"):
            try:
                if what == "rows":
                    written(encoder, history(_ORDERS), topic, form)
                else:
                    encoder.encode_resolved(topic, history(_ORDERS).latest())
            except RetryableError:
                continue
            except Exception as error:
                pytest.fail(f"{form}: without the service, {what} must raise RetryableError, not {error!r}")
            pytest.fail(f"{form}: without the service, {what} must raise RetryableError; no error was raised")


def _cases(rig: EncoderRig, samples: Sequence[Sample], topic: str, *, output: str) -> Iterator[_Case]:
    """Yield each form with rows that it cannot encode; skip the test when there is none."""
    none = True
    for form in rig.some(rows=True, output=output):
        case = next(_refused(rig, form, samples, topic), None)
        if case is not None:
            none = False
            yield case
    if none:
        does_not_apply("the encoder encodes every value of the samples")


def _refused(rig: EncoderRig, form: Form, samples: Sequence[Sample], topic: str) -> Iterator[_Case]:
    for sample in rig.accepted(form, samples, topic):
        schema = table(f"bad_{sample.name}", {"id": INT8, _COLUMN: sample.type})
        for value in sample.odd:
            values = [value if number in _BAD else sample.ordinary[0] for number in range(_ROWS)]
            batch = rows(schema, [Change({"id": number, _COLUMN: each}) for number, each in enumerate(values)])
            encoder, name = rig.encoder(form), f"{topic}_bad_{sample.name}"
            one = batch.slice(_BAD[0], 1)
            try:
                written(encoder, one, name, form)
            except EncodeError:
                yield _Case(form, batch, name)


def _bisect(encoder: Encoder, batch: RowBatch, first: int, topic: str, bad: list[int]) -> list[object]:
    """Return the messages of all good rows. The indices of bad rows, counted from *first*, are added to *bad*."""
    try:
        return list(pairs_of(encoder.encode(batch, topic=topic)))
    except EncodeError:
        if len(batch) == 1:
            bad.append(first)
            return []
    half = len(batch) // 2
    left = _bisect(encoder, batch.slice(0, half), first, topic, bad)
    return left + _bisect(encoder, batch.slice(half), first + half, topic, bad)
