"""Promises about files: rows in order, and no damage unseen."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import pytest

from cdc_conformance.encoders import messages
from cdc_conformance.encoders.comparing import differences, rows_of
from cdc_conformance.encoders.rig import EncoderRig, Form, body_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import DecodedRow, EncodeError, Encoder, Op, RowBatch
from cdc_core.decoder import rows_of as decoder_rows

__all__ = ["Files"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})


class Files:
    """Asked of encoders that write files."""

    @pytest.fixture
    def file_forms(self, rig: EncoderRig) -> list[Form]:
        """Every form that is a file."""
        forms = rig.forms(output="files")
        if not forms:
            pytest.skip(f"encoder '{rig.registration.name}' writes no files here")
        return forms

    def test_a_file_holds_the_rows_of_all_writes_in_order(
        self, rig: EncoderRig, file_forms: list[Form], topic: str
    ) -> None:
        """What the writes returned, and then `finish`, is one file with the rows of all batches, each once, in order.

        Batches may be empty or large. When this fails, look at rows that wait for a block to be full.
        """
        large = rows(_ORDERS, [Change({"id": n, "note": "x" * 500}) for n in range(10, 300)])
        batches = [_few(0), rows(_ORDERS, []), large, _few(5), large.slice(7, 100)]
        for form in file_forms:
            wanted = [row for batch in batches for row in rows_of(batch, topic, form)]
            said = differences(_ORDERS, form, wanted, rig.read(form, batches, topic))
            assert not said, said

    def test_a_file_without_rows_can_be_read(self, rig: EncoderRig, file_forms: list[Form], topic: str) -> None:
        """A body that got no rows, or only empty batches, is a file of no rows, be it of no bytes."""
        for form in file_forms:
            for batches in ([], [rows(_ORDERS, [])], [_few(0).slice(1, 0), rows(_ORDERS, [])]):
                body = body_of(rig.encoder(form), batches, topic)
                found = rig.decoder(form).file(_ORDERS, body)
                assert list(found) == [], f"{form}: a file that got no rows has {len(found)}"

    def test_a_file_that_is_cut_off_is_seen_to_be(self, rig: EncoderRig, file_forms: list[Form], topic: str) -> None:
        """The decoder raises ValueError for a file without its last byte, and never reads a row that was not written.

        A file that is cut where a block or line ends may read as the rows up to there.
        """
        batch = _few(0)
        for form in file_forms:
            body = body_of(rig.encoder(form), [batch], topic)
            whole = rows_of(batch, topic, form)
            for size in {*range(0, len(body), max(1, len(body) // 100)), len(body) - 1}:
                found = _rows_or_none(rig, form, body[:size])
                assert found is None or size < len(body) - 1, (
                    f"{form}: a file without its last byte is read as if it were whole, and raises no ValueError"
                )
                said = found is not None and differences(_ORDERS, form, whole[: len(found)], found)
                assert not said, f"a file cut off after {size} of {len(body)} bytes reads as other rows: {said}"

    def test_files_that_are_open_together_do_not_mix(self, rig: EncoderRig, file_forms: list[Form], topic: str) -> None:
        """An encoder has several bodies open at once, of several tables and topics; each gets its own rows alone.

        With `topic_in_value` these have the topic that their own body was opened for.
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
                said = differences(batch.schema, form, rows_of(batch, f"{topic}_{index}", form)[:4], found)
                assert not said, f"of {len(open_)} files written side by side, file {index}: {said}"

    def test_reading_by_columns_gives_the_rows_of_the_file(
        self, rig: EncoderRig, samples: Sequence[Sample], topic: str
    ) -> None:
        """`Decoder.rows` gives as a batch what `Decoder.file` gives row by row, with `updated` and the key in the file.

        Every kind of value, nulls, deletes, and files of no rows. The quick way is how users read a whole history, so
        it may lose no more than the slow one: look at types that are read as another, and at nulls in structs.
        """
        for form in rig.some("updated", rows=True, output="files"):
            several = [messages.history(rig.every_kind(form, topic)), rows(_ORDERS, [])]
            for sample in rig.accepted(form, samples, topic):
                schema = table(f"of_{sample.name}", {"id": INT8, "value": sample.type})
                values = [*sample.ordinary, None, *sample.odd]
                several.append(rows(schema, [Change({"id": n, "value": value}) for n, value in enumerate(values)]))
            for batch in several:
                said = _by_columns(rig, form, batch, topic)
                assert not said, f"Decoder.rows gives other rows than Decoder.file: {said}"

    def test_a_file_that_is_compressed_inside_can_be_read(
        self, rig: EncoderRig, file_forms: list[Form], topic: str
    ) -> None:
        """An encoder with `compresses` writes files as `context.compression` says, and its decoder reads them all.

        The sink leaves such files alone. A decoder is told of no compression: a file says itself how to read it.
        """
        batch = _few(0)
        for form in file_forms:
            if not type(rig.unguarded(form)).compresses:
                continue
            cls = rig.job(form).encoder.load(Encoder)
            for compression in ("none", "gzip", "zstd"):
                context = dataclasses.replace(rig.context(form), compression=compression)
                body = body_of(rig.guarded(cls(context)), [batch], topic)
                found = list(rig.decoder(form).file(_ORDERS, body))
                said = differences(_ORDERS, form, rows_of(batch, topic, form), found)
                assert not said, f"a file with compression '{compression}' inside: {said}"

    def test_the_extension_of_files_begins_with_a_dot(self, rig: EncoderRig, file_forms: list[Form]) -> None:
        """`file_extension` is the end of a file's name, such as `.ndjson`: a dot, and nothing that a path ends at."""
        for form in file_forms:
            extension = rig.encoder(form).file_extension
            assert extension.startswith("."), f"{form}: file_extension is {extension!r}, without a dot before it"
            fits = len(extension) > 1 and not set("/\\ ") & set(extension)
            assert fits, f"{form}: file_extension {extension!r} cannot end the name of a file"


def _by_columns(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> str:
    """Return what is different between the two ways to read a file of those rows of *batch* that can be written."""
    body, decoder = rig.encoder(form).open_body(topic), rig.decoder(form)
    written = []
    for number in range(max(1, len(batch))):
        with contextlib.suppress(EncodeError):
            written.append(bytes(body.write(batch.slice(number, 1))))
    file = b"".join([*written, bytes(body.finish())])
    try:
        wanted = list(decoder.file(batch.schema, file))
        decoder_rows(batch.schema, wanted)
    except (ValueError, OverflowError):  # that these are rows of the table is another promise's affair
        return ""
    found = decoder.rows(batch.schema, file)
    said = differences(batch.schema, form, wanted, rows_of(found, topic, form))
    gone = [row.after is None for row in wanted]
    ops = [op == Op.DELETE for op in found.column("op").to_pylist()]
    return said or ("" if ops == gone or form.name == "bare" else f"{form}: deleted are {ops}, not {gone}")


def _few(first: int) -> RowBatch:
    ops = (Op.INSERT, Op.UPDATE, Op.DELETE, Op.SCAN)
    changes = [Change({"id": first + n, "note": f"note {n}\n é"}, op=op) for n, op in enumerate(ops)]
    return rows(_ORDERS, changes)


def _rows_or_none(rig: EncoderRig, form: Form, body: bytes) -> list[DecodedRow] | None:
    try:
        return list(rig.decoder(form).file(_ORDERS, body))
    except ValueError:
        return None
