"""Rows with values that the source does not know: messages and files name their fields."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_avro.decoder import AvroDecoder
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_schema_registry import unframe
from cdc_testing.table_rows import Row, make_rows

from cdc_core import EncoderContext, Envelope, Op, RowBatch, Timestamp

TYPES = {"id": INT8, "größe": TEXT, "note": TEXT}
STAMP = Timestamp(5)


def context_of(*, output: str = "messages", **envelope: Any) -> EncoderContext:
    options = AvroOptions(confluent_schema_registry=None if output == "files" else "http://registry.test")
    chosen = Envelope(**({"key_in_value": True} if output == "files" else {}), **envelope)
    return EncoderContext(changefeed="feed", envelope=chosen, options=options, output=output)


@pytest.fixture
def history() -> RowBatch:
    changes = [
        Row(after={"id": 1, "größe": "g", "note": None}, updated=STAMP),
        Row(op=Op.UPDATE, after={"id": 1, "größe": None, "note": None}, updated=STAMP, unavailable=("größe",)),
        Row(op=Op.DELETE, key=(1,), updated=STAMP),
        Row(op=Op.UPDATE, after={"id": 2, "größe": None, "note": None}, updated=STAMP, unavailable=("größe", "note")),
        Row(after={"id": 3, "größe": "g", "note": "n"}, updated=STAMP),
    ]
    return make_rows(TYPES, changes, primary_key=["id"])


LACKING = [(), ("größe",), (), ("größe", "note"), ()]


@pytest.mark.parametrize("envelope", ["wrapped", "bare"])
def test_a_message_that_lacks_values_has_a_schema_that_says_so(
    history: RowBatch, registered: Any, envelope: str
) -> None:
    encoder = AvroEncoder(context_of(name=envelope, updated=True))
    encoder.encode(history.slice(0, 1), topic="t")
    whole = [text for subject, text in registered.schemas if subject == "t-value"]
    values = encoder.encode(history, topic="t").value.to_pylist()
    known = [json.loads(text) for subject, text in registered.schemas if subject == "t-value"]
    assert known[0] == json.loads(whole[0])
    assert len(known) == 2
    assert known[1] == {
        **known[0],
        "fields": [
            *known[0]["fields"],
            {"name": "unavailable", "type": ["null", {"type": "array", "items": "string"}], "default": None},
        ],
    }
    found = []
    for value in values:
        schema_id, data = unframe(value)
        written = fastavro.parse_schema(json.loads(registered.text(schema_id)))
        stream = io.BytesIO(data)
        found.append(fastavro.schemaless_reader(stream, written, None))
        assert not stream.read()
    field = "after" if envelope == "wrapped" else "record"
    names = [["gr_u00f6__u00df_e"], ["gr_u00f6__u00df_e", "note"]]
    assert [record.get("unavailable") for record in found] == [None, names[0], None, names[1], None]
    assert found[1][field] == {"id": 1, "gr_u00f6__u00df_e": None, "note": None}
    assert all(("unavailable" in record) == bool(names) for record, names in zip(found, LACKING, strict=True))


def test_messages_of_complete_rows_keep_their_schema(history: RowBatch, registered: Any) -> None:
    encoder = AvroEncoder(context_of())
    alone = encoder.encode(history.slice(4, 1), topic="t").value.to_pylist()
    assert "unavailable" not in registered.schemas[-1][1]
    assert encoder.encode(history, topic="t").value.to_pylist()[4:] == alone


@pytest.mark.usefixtures("registered")
def test_key_only_has_no_row_that_could_lack_a_value(history: RowBatch) -> None:
    whole = make_rows(TYPES, [Row(after={"id": 2, "größe": "", "note": ""}, updated=STAMP)], primary_key=["id"])
    encoder = AvroEncoder(context_of(name="key_only"))
    lacking = encoder.encode(history.slice(3, 1), topic="t")
    assert lacking.value.to_pylist() == encoder.encode(whole, topic="t").value.to_pylist()


def test_a_file_has_a_field_for_the_names(history: RowBatch) -> None:
    context = context_of(output="files", updated=True)
    body = AvroEncoder(context).open_body("t")
    data = b"".join([bytes(body.write(history.slice(0, 1))), bytes(body.write(history.slice(1))), bytes(body.finish())])
    names = [record["unavailable"] for record in fastavro.reader(io.BytesIO(data))]
    assert names == [None, ["gr_u00f6__u00df_e"], None, ["gr_u00f6__u00df_e", "note"], None]
    decoder = AvroDecoder(context)
    assert [row.unavailable for row in decoder.file(history.schema, data)] == LACKING
    found = decoder.rows(history.schema, data)
    assert found.column("after").equals(history.column("after"))
    assert found.column("unavailable").equals(history.column("unavailable"))
