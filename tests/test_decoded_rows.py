"""`Decoder.rows` returns the same rows by column as the default does one row at a time."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import pytest
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_encoder_avro.decoder import AvroDecoder
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_parquet.decoder import ParquetDecoder
from cdc_encoder_parquet.encoder import ParquetEncoder
from cdc_encoder_parquet.options import ParquetOptions
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_core import (
    ColumnType,
    Decoder,
    Encoder,
    EncoderContext,
    Envelope,
    Kind,
    Op,
    RowBatch,
    RowPlace,
    Timestamp,
)

_WRAPPED = Envelope(updated=True, key_in_value=True)


@dataclass(frozen=True, kw_only=True)
class Form:
    """An encoder with options and envelope. *vectorised*: its decoder reads whole columns."""

    name: str
    encoder_class: type[Encoder]
    decoder_class: type[Decoder]
    options: Any
    envelope: Envelope = _WRAPPED
    vectorised: bool = True

    @cached_property
    def encoder(self) -> Encoder:
        return self.encoder_class(self._context)

    @cached_property
    def decoder(self) -> Decoder:
        return self.decoder_class(self._context)

    def with_everything(self) -> Self:
        """Return the same form with all metadata that its envelope has a place for."""
        diff = self.envelope.row is RowPlace.MEMBER
        return dataclasses.replace(self, envelope=dataclasses.replace(self.envelope, diff=diff, mvcc_timestamp=True))

    @property
    def _context(self) -> EncoderContext:
        return EncoderContext(changefeed="c", envelope=self.envelope, options=self.options, output="files")

    def __str__(self) -> str:
        return self.name


_BARE = Envelope(name="bare", updated=True, key_in_value=True)
_JSON: dict[str, Any] = {"encoder_class": JsonEncoder, "decoder_class": JsonDecoder}
_PARQUET: dict[str, Any] = {"encoder_class": ParquetEncoder, "decoder_class": ParquetDecoder}
_TEXTS = ParquetOptions(parquet_special_values="string", parquet_arrays="json", parquet_time="string")
FORMS = (
    Form(name="json wrapped", options=JsonOptions(), **_JSON),
    Form(name="json with null objects", options=JsonOptions(encode_json_value_null_as_object=True), **_JSON),
    Form(name="json bare", options=JsonOptions(), envelope=_BARE, **_JSON),
    Form(name="parquet", options=ParquetOptions(), **_PARQUET),
    Form(name="parquet as text", options=_TEXTS, **_PARQUET),
    Form(
        name="avro",
        options=AvroOptions(avro_special_values="string"),
        encoder_class=AvroEncoder,
        decoder_class=AvroDecoder,
        vectorised=False,
    ),
)


def body_of(form: Form, *batches: RowBatch) -> bytes:
    body = form.encoder.open_body("t")
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])


def check(form: Form, batch: RowBatch) -> None:
    body = body_of(form, batch)
    found = form.decoder.rows(batch.schema, body)
    assert "mvcc" not in found.batch.schema.names
    wanted = Decoder.rows(form.decoder, batch.schema, body) if form.vectorised else found
    for name in ("updated", "key", "after"):
        assert found.column(name).type == wanted.column(name).type
        assert found.column(name).equals(wanted.column(name)), name
    assert len(found) == len(batch)
    deletes = [op == Op.DELETE for op in found.column("op").to_pylist()]
    assert deletes == found.column("after").is_null().to_pylist()


_AWKWARD = st.text(st.sampled_from('ab\\"[]{},: é😀\n\x00u') | st.characters(codec="utf-8"), max_size=8)
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | _AWKWARD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_AWKWARD, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.none() | _AWKWARD, min_size=1, max_size=4),
    documents=st.lists(st.none() | _DOCUMENTS, min_size=4, max_size=4),
    indent=st.none() | st.just(1),
)
def test_texts_of_any_content_are_read(texts: list[str | None], documents: list[Any], indent: int | None) -> None:
    schema = table("t", {"id": INT8, "after": TEXT, "v": ColumnType(kind=Kind.JSON, source="json")})
    images = [
        {"id": number, "after": text, "v": json.dumps(documents[number], ensure_ascii=False, indent=indent)}
        for number, text in enumerate(texts)
    ]
    some = [
        Change(image, op=Op.DELETE if image["id"] == 2 else Op.UPDATE, before=before)
        for image, before in zip(images, reversed(images), strict=True)
    ]
    for form in FORMS:
        diff = form.with_everything()
        note(f"form: {diff}")
        check(diff, rows(schema, some, before=diff.envelope.diff, mvcc=True))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_unusual_column_names_are_found(form: Form) -> None:
    names = ["größe (cm)", 'quo"te', "back\\slash", "new\nline", "", "key", "after", "updated", "Z", "a: ", "__crd"]
    schema = table("t", {"id": INT8, **dict.fromkeys(names, TEXT)})
    check(form, rows(schema, [Change({"id": 1, **dict(zip(names, names, strict=True))}), Change({"id": 2})]))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_damaged_files_are_refused(form: Form) -> None:
    schema = table("t", {"id": INT8, "v": TEXT})
    body = body_of(form, rows(schema, [Change({"id": n, "v": "x"}) for n in range(3)]))
    for damaged in (body[:-1], body[1:], body[: len(body) // 2]):
        with pytest.raises(ValueError):  # noqa: PT011 (the message depends on the library)
            form.decoder.rows(schema, damaged)


def test_lines_of_other_writers_are_read() -> None:
    schema = table("t", {"id": INT8, "v": ColumnType(kind=Kind.BOOL, source="boolean")})
    (form,) = (form for form in FORMS if str(form) == "json wrapped")
    body = b'{"updated":"5.0000000001","key":[1],"after":{"v":true,"id":1}}\n'
    found = form.decoder.rows(schema, body)
    assert found.column("after").to_pylist() == [{"id": 1, "v": True}]
    assert found.latest() == Timestamp(5, 1)


def test_vectorised_decoders_do_not_read_row_by_row() -> None:
    schema = table("t", {"id": INT8, "v": TEXT})
    batch = rows(schema, [Change({"id": n, "v": f"text {n}"}) for n in range(1000)])
    assert sum(form.vectorised for form in FORMS) > 1
    for form in FORMS:
        if form.vectorised:
            seen: list[Any] = []
            form.decoder.file = lambda *arguments, seen=seen: seen.append(arguments)  # type: ignore[method-assign]
            try:
                assert len(form.decoder.rows(schema, body_of(form, batch))) == 1000
            finally:
                del form.decoder.file
            assert seen == []
