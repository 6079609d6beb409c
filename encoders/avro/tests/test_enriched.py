"""Envelope `enriched`, read by fastavro."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_avro.decoder import AvroDecoder
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_testing.table_rows import Row, make_rows

from cdc_core import EncoderContext, Envelope, Op, OptionError, RowBatch, SourceFacts, Timestamp

UPDATED = [Timestamp(1_701_102_296_662_969_433 + n, n) for n in range(4)]
TS = 1_743_792_394_409_866_000


def context(*properties: str, **flags: bool) -> EncoderContext:
    envelope = Envelope(name="enriched", enriched_properties=properties, key_in_value=True, **flags)
    facts = SourceFacts(changefeed_sink="cloudstorage", job_id="shop", origin="postgresql")
    return EncoderContext(
        changefeed="shop", envelope=envelope, options=AvroOptions(), output="files", source=facts, clock=lambda: TS
    )


def records(rows: RowBatch, wanted: EncoderContext) -> list[dict[str, Any]]:
    found = fastavro.reader(io.BytesIO(file_of(rows, wanted)))
    return [record for record in found if isinstance(record, dict)]


def file_of(rows: RowBatch, wanted: EncoderContext) -> bytes:
    body = AvroEncoder(wanted).open_body("foo")
    return bytes(body.write(rows)) + bytes(body.finish())


@pytest.fixture
def history() -> RowBatch:
    """Insert, update, delete and scan of a row with the key (b, a)."""
    first, second = {"a": 1, "b": "é"}, {"a": 1, "b": "é"}
    changes = [
        Row(op=Op.INSERT, after=first, key=("é", 1), updated=UPDATED[0], mvcc=UPDATED[0]),
        Row(op=Op.UPDATE, after=second, before=first, key=("é", 1), updated=UPDATED[1], mvcc=UPDATED[1]),
        Row(op=Op.DELETE, before=second, key=("é", 1), updated=UPDATED[2], mvcc=UPDATED[2]),
        Row(op=Op.SCAN, after=first, key=("é", 1), updated=UPDATED[3], mvcc=UPDATED[0]),
    ]
    return make_rows({"a": INT8, "b": TEXT}, changes, primary_key=["b", "a"], diff=True, mvcc=True)


def test_records_say_what_happened_and_when_they_were_made(history: RowBatch) -> None:
    found = records(history, context(diff=True))
    assert [record["op"] for record in found] == ["c", "u", "d", "c"]
    assert {record["ts_ns"] for record in found} == {TS}
    assert [record["after"] is None for record in found] == [False, False, True, False]
    assert [record["before"] is None for record in found] == [True, False, False, True]
    assert "source" not in found[0]


def test_the_source_names_the_table_and_holds_the_timestamps(history: RowBatch) -> None:
    name = history.schema.name
    facts = {
        "changefeed_sink": "cloudstorage",
        "database_name": name.database,
        "job_id": "shop",
        "origin": "postgresql",
        "primary_keys": ["b", "a"],
        "schema_name": name.schema,
        "source_node_locality": "",
        "table_name": name.table,
    }
    assert [record["source"] for record in records(history, context("source"))] == [facts] * 4
    assert [record["source"] for record in records(history, context("source", updated=True, mvcc_timestamp=True))] == [
        facts
        | {"mvcc_timestamp": str(UPDATED[0] if number == 3 else updated), "ts_hlc": str(updated), "ts_ns": updated.wall}
        for number, updated in enumerate(UPDATED)
    ]


def test_what_was_written_is_read_back(history: RowBatch) -> None:
    wanted = context("source", updated=True, mvcc_timestamp=True)
    rows = AvroDecoder(wanted).file(history.schema, file_of(history, wanted))
    assert [row.op for row in rows] == [Op.INSERT, Op.UPDATE, Op.DELETE, Op.INSERT]
    assert [row.updated for row in rows] == UPDATED
    assert [row.mvcc for row in rows] == [*UPDATED[:3], UPDATED[0]]
    batch = AvroDecoder(wanted).rows(history.schema, file_of(history, wanted))
    assert batch.column("op").to_pylist() == [Op.INSERT, Op.UPDATE, Op.DELETE, Op.INSERT]


def test_a_schema_beside_the_schema_of_avro_is_refused() -> None:
    with pytest.raises(OptionError, match=r"Avro always has a schema; remove it$"):
        AvroEncoder(context("schema"))
