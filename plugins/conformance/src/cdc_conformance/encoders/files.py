"""Promises about files."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import pytest

from cdc_conformance.encoders.comparison import differences, expected_rows
from cdc_conformance.encoders.form import COMPRESSES, DECODER, FILES, Form
from cdc_conformance.encoders.messages import history
from cdc_conformance.encoders.rig import EncoderRig, body_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import DecodedRow, DeleteForm, EncodeError, Encoder, Op, RowBatch
from cdc_core.decoder import rows_of

__all__ = ["Files"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})


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

        A file that ends at the end of a block or line may be read as the rows before it.
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

        With `topic_in_value`, the topic is that of the body.
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
                schema = table(f"of_{sample.name}", {"id": INT8, "value": sample.type})
                values = [*sample.ordinary, None, *sample.odd]
                several.append(rows(schema, [Change({"id": n, "value": value}) for n, value in enumerate(values)]))
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
