"""Avro encoding, compared with a loop that calls fastavro for each row."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.rows import row_batch
from benchmarks.timing import fastest_s
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.schemas import envelope_schema, key_schema, schema_text

from cdc_core import EncoderContext, Envelope, RowBatch

_BATCH_ROWS = 16_384
_OPTIONS = AvroOptions(confluent_schema_registry="http://nowhere.invalid")
_ENVELOPE = Envelope(updated=True)


class _Alone(AvroEncoder):
    """The encoder with constant ids instead of a registry."""

    def _registered(self, subject: str, schema: str, *, aside: str | None = None) -> int:
        return 1 if subject.endswith("-key") else 2


def run(bench: Bench) -> Iterator[Figure]:
    """Both run in one process, and write the same bytes for the key and value of each row."""
    rows = bench.sizes.part_rows // _BATCH_ROWS * _BATCH_ROWS
    whole = row_batch(rows)
    batches = [whole.slice(offset, _BATCH_ROWS) for offset in range(0, rows, _BATCH_ROWS)]
    ours = _Alone(EncoderContext(changefeed="bench", envelope=_ENVELOPE, options=_OPTIONS))
    messages_s = fastest_s(lambda: [ours.encode(batch, topic="orders") for batch in batches])
    blocks_s = {codec: fastest_s(lambda codec=codec: _file(batches, codec)) for codec in ("null", "zstandard")}  # type: ignore[misc]
    sample = batches[:2]
    loop = _Loop(whole)
    ready = [record for batch in sample for record in loop.records(batch)]
    loops = {
        "rows_from_arrow": fastest_s(lambda: [loop.messages(loop.records(batch)) for batch in sample], times=2),
        "rows_ready": fastest_s(lambda: loop.messages(ready), times=2),
    }
    peers = {name: len(ready) / seconds for name, seconds in loops.items()}
    found = ours.encode(batches[0], topic="orders")
    expected = loop.messages(loop.records(batches[0]))
    if list(zip(found.key.to_pylist(), found.value.to_pylist(), strict=True)) != expected:
        raise AssertionError("the encoder's messages are not those of fastavro")
    yield Figure(
        name="part: Avro encoding, keys and values",
        value=rows / messages_s,
        unit="rows/s",
        peer=max(peers.values()),
        peer_name="fastavro loop",
        target=Target(at_least=1_000_000, per_peer=5),
        details={"loops": peers, "message_bytes": len(expected[0][1])},
    )
    for codec, seconds in blocks_s.items():
        yield Figure(name=f"part: Avro encoding, files, codec {codec}", value=rows / seconds, unit="rows/s")


def _file(batches: list[RowBatch], codec: Any) -> None:
    envelope = Envelope(updated=True, key_in_value=True)
    options = AvroOptions(avro_codec=codec)
    context = EncoderContext(changefeed="bench", envelope=envelope, options=options, output="files")
    body = AvroEncoder(context).open_body("orders")
    for batch in batches:
        body.write(batch)
    body.finish()


class _Loop:
    """A program that works row by row: one call of fastavro for each key and value."""

    def __init__(self, rows: RowBatch) -> None:
        value = envelope_schema(rows.schema, "orders", envelope=_ENVELOPE, options=_OPTIONS, resolved=True)
        self._key = fastavro.parse_schema(json.loads(schema_text(key_schema(rows.schema, _OPTIONS))))
        self._value = fastavro.parse_schema(json.loads(schema_text(value)))

    def records(self, rows: RowBatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the key and the value of each row."""
        columns = [rows.column(name).to_pylist() for name in ("key", "after", "updated")]
        return [
            (key, {"after": after, "updated": f"{stamp['wall']}.{stamp['logical']:010d}", "resolved": None})
            for key, after, stamp in zip(*columns, strict=True)
        ]

    def messages(self, records: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[bytes, bytes]]:
        return [
            (_written(b"\0\0\0\0\1", self._key, key), _written(b"\0\0\0\0\2", self._value, value))
            for key, value in records
        ]


def _written(header: bytes, schema: Any, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(header)
    fastavro.schemaless_writer(out, schema, record)
    return out.getvalue()
