"""Promises about files, about rows that cannot be encoded, and about services without which none can be."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cdc_conformance.encoders.comparison import differences, expected_rows
from cdc_conformance.encoders.form import COMPRESSES, DECODER, FILES, MESSAGES, Form
from cdc_conformance.encoders.messages import history, written
from cdc_conformance.encoders.rig import EncoderRig, body_of, pairs_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import applies_if, does_not_apply, requires
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.side_effects import failure_of
from cdc_core import ConfigError, DecodedRow, DeleteForm, EncodeError, Encoder, Op, RetryableError, RowBatch
from cdc_core.decoder import rows_of

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_COLUMN = "peculiar"
_BAD = (3, 8)
_ROWS = 11


@applies_if(FILES)
@applies_if(DECODER)
class Files:
    """Encoders that write files."""

    @pytest.fixture
    def file_forms(self, rig: EncoderRig) -> list[Form]:
        """Every form that is a file."""
        return rig.some(output="files")

    def test_a_file_holds_the_rows_of_all_writes_in_order(
        self, rig: EncoderRig, file_forms: list[Form], topic: str
    ) -> None:
        """The bytes that the writes and `finish` return are one file with the rows of all batches, once and in order.

        Batches may be empty or large. Look at rows that wait for a full block.
        """
        large = rows(_ORDERS, [Change({"id": n, "note": "x" * 500}) for n in range(10, 300)])
        batches = [_few(0), rows(_ORDERS, []), large, _few(5), large.slice(7, 100)]
        for form in file_forms:
            wanted = [row for batch in batches for row in expected_rows(batch, topic, form)]
            difference = differences(_ORDERS, form, wanted, rig.read(form, batches, topic))
            assert not difference, difference

    def test_a_file_without_rows_can_be_read(self, rig: EncoderRig, file_forms: list[Form], topic: str) -> None:
        """A body without rows, or with only empty batches, is a file without rows. It may be empty."""
        for form in file_forms:
            for batches in ([], [rows(_ORDERS, [])], [_few(0).slice(1, 0), rows(_ORDERS, [])]):
                body = body_of(rig.encoder(form), batches, topic)
                found = rig.decoder(form).file(_ORDERS, body)
                assert list(found) == [], f"{form}: a file without rows is read with {len(found)} rows"

    def test_a_truncated_file_is_detected(self, rig: EncoderRig, file_forms: list[Form], topic: str) -> None:
        """The decoder raises ValueError for a file without its last byte, and never returns a row that was not written.

        A file that is cut at the end of a block or line could be read as a complete, shorter file.
        """
        batch = _few(0)
        for form in file_forms:
            body = body_of(rig.encoder(form), [batch], topic)
            whole = expected_rows(batch, topic, form)
            for size in {*range(0, len(body), max(1, len(body) // 100)), len(body) - 1}:
                found = _rows_or_none(rig, form, body[:size])
                assert found is None or size < len(body) - 1, (
                    f"{form}: a file without its last byte is read as a complete file; it must raise ValueError"
                )
                difference = found is not None and differences(_ORDERS, form, whole[: len(found)], found)
                assert not difference, f"a file truncated after {size} of {len(body)} bytes: {difference}"

    def test_open_files_do_not_mix(self, rig: EncoderRig, file_forms: list[Form], topic: str) -> None:
        """An encoder may have several open bodies, of several tables and topics. Each contains only its own rows.

        With `topic_in_value`, rows have the topic of their body.
        """
        others = table("others", {"id": INT8, "other": TEXT})
        second = rows(others, [Change({"id": n, "other": f"other {n}"}) for n in range(4)])
        for form in [*file_forms, *rig.forms("topic_in_value", output="files")]:
            encoder = rig.encoder(form)
            open_ = [(encoder.open_body(f"{topic}_{n}"), batch) for n, batch in enumerate((_few(0), second, _few(50)))]
            written = [b""] * len(open_)
            for part in range(2):
                for index, (body, batch) in enumerate(open_):
                    written[index] += bytes(body.write(batch.slice(part * 2, 2)))
            for index, (body, batch) in enumerate(open_):
                written[index] += bytes(body.finish())
                found = list(rig.decoder(form).file(batch.schema, written[index]))
                difference = differences(batch.schema, form, expected_rows(batch, f"{topic}_{index}", form)[:4], found)
                assert not difference, f"file {index} of {len(open_)} files that were open together: {difference}"

    def test_reading_by_columns_gives_the_rows_of_the_file(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """`Decoder.rows` returns the same rows as `Decoder.file`, when `updated` and the key are in the file.

        This holds for every kind of value, nulls, deletes and files without rows. Users read a whole history this way.
        Look at types that are read as another type, and at nulls in structs.
        """
        for form in rig.some("updated", rows=True, output="files"):
            several = [history(rig.every_kind(form, topic)), rows(_ORDERS, [])]
            for sample in rig.accepted(form, samples, topic):
                columns = {"id": INT8, "value": sample.type}
                some = [Change({"id": n, "value": value}) for n, value in enumerate([*sample.ordinary, *sample.odd])]
                several.append(rows(table(f"of_{sample.name}", columns), [*some, Change({"id": len(some)})]))
                several.append(rows(table(f"by_{sample.name}", columns, primary_key=("id", "value")), some))
            for batch in several:
                difference = _difference_by_columns(rig, form, batch, topic)
                assert not difference, f"Decoder.rows and Decoder.file differ: {difference}"

    @applies_if(COMPRESSES)
    def test_files_compressed_by_the_encoder_can_be_read(
        self, rig: EncoderRig, file_forms: list[Form], topic: str
    ) -> None:
        """An encoder with `compresses` applies `context.compression`, and its decoder reads the files.

        The sink does not compress such files. The decoder gets no compression: it must find it in the file.
        """
        batch = _few(0)
        for form in file_forms:
            cls = rig.feed(form).encoder.load("encoder", Encoder)
            bodies = set()
            for compression in ("none", "gzip", "zstd"):
                context = dataclasses.replace(rig.context(form), compression=compression)
                body = body_of(rig.guarded(cls(context)), [batch], topic)
                found = list(rig.decoder(form).file(_ORDERS, body))
                difference = differences(_ORDERS, form, expected_rows(batch, topic, form), found)
                assert not difference, f"a file with compression '{compression}': {difference}"
                bodies.add(body)
            assert len(bodies) == 3, (
                f"{form}: the compressions none, gzip and zstd give {len(bodies)} different files, not 3; the encoder "
                "must apply context.compression"
            )


def _difference_by_columns(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> str:
    """Return how the two ways to read a file differ. The file has the rows of *batch* that can be encoded."""
    body, decoder = rig.encoder(form).open_body(topic), rig.decoder(form)
    written = []
    for number in range(max(1, len(batch))):
        with contextlib.suppress(EncodeError):
            written.append(bytes(body.write(batch.slice(number, 1))))
    file = b"".join([*written, bytes(body.finish())])
    try:
        wanted = list(decoder.file(batch.schema, file))
        rows_of(batch.schema, wanted)
    except (ValueError, OverflowError):  # Another promise is about wrong rows.
        return ""
    found = decoder.rows(batch.schema, file)
    if len(found) != len(wanted):
        return f"{form}: Decoder.file returns {len(wanted)} rows, Decoder.rows {len(found)}"
    difference = differences(batch.schema, form, wanted, expected_rows(found, topic, form))
    wanted_deletes = [row.after is None for row in wanted]
    deletes = [op == Op.DELETE for op in found.column("op").to_pylist()]
    if difference or deletes == wanted_deletes or form.envelope.delete is DeleteForm.KEY_AND_NULLS:
        return difference
    return f"{form}: the deleted rows are {deletes}, not {wanted_deletes}"


def _few(first: int) -> RowBatch:
    ops = (Op.INSERT, Op.UPDATE, Op.DELETE, Op.SCAN)
    changes = [Change({"id": first + n, "note": f"note {n}\n é"}, op=op) for n, op in enumerate(ops)]
    return rows(_ORDERS, changes)


def _rows_or_none(rig: EncoderRig, form: Form, body: bytes) -> list[DecodedRow] | None:
    try:
        return list(rig.decoder(form).file(_ORDERS, body))
    except ValueError:
        return None


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
            assert pairs == wanted, f"{case.form}: after a bad row, the other rows have different bytes than without it"

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
        calls = {
            "rows": lambda: written(encoder, history(_ORDERS), topic, form),
            "a resolved mark": lambda: encoder.encode_resolved(topic, history(_ORDERS).latest()),
        }
        for what, call in calls.items():
            error = failure_of(call)
            assert isinstance(error, RetryableError), (
                f"{form}: without the service, {what} must raise RetryableError, not {error!r}"
            )


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
