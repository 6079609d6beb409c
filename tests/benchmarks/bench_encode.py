"""Encoding of JSON compared with a loop of orjson, of Parquet and CSV with Arrow's writers, and of Protocol Buffers
with a loop of the official library."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.rows import row_batch
from benchmarks.timing import fastest_s
from cdc_encoder_csv.encoder import CsvEncoder
from cdc_encoder_csv.options import CsvOptions
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_parquet.decoder import ParquetDecoder
from cdc_encoder_parquet.encoder import ParquetEncoder
from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_protobuf.descriptors import message_class
from cdc_encoder_protobuf.encoder import ProtobufEncoder
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.values import field_name
from pyarrow import csv

from cdc_core import ColumnType, Decoder, Encoder, EncoderContext, Envelope, RowBatch

_BATCH_ROWS = 16_384


def encoder() -> JsonEncoder:
    """Return the encoder of the benchmarks: envelope `wrapped`, with `updated`."""
    context = EncoderContext(changefeed="bench", envelope=Envelope(updated=True), options=JsonOptions())
    return JsonEncoder(context)


def run(bench: Bench) -> Iterator[Figure]:
    """Both run in one process, and encode the same content for the key and value of each row."""
    rows = bench.sizes.part_rows // _BATCH_ROWS * _BATCH_ROWS
    whole = row_batch(rows)
    batches = [whole.slice(offset, _BATCH_ROWS) for offset in range(0, rows, _BATCH_ROWS)]
    ours = encoder()
    messages_s = fastest_s(lambda: [ours.encode(batch, topic="orders") for batch in batches])
    body = ours.open_body("orders")
    lines_s = fastest_s(lambda: [body.write(batch) for batch in batches])
    sample = batches[:4]
    loops = {
        "as_objects": fastest_s(lambda: [_loop(batch, as_text=False) for batch in sample], times=2),
        "timestamps_as_text": fastest_s(lambda: [_loop(batch, as_text=True) for batch in sample], times=2),
    }
    peers = {name: len(sample) * _BATCH_ROWS / seconds for name, seconds in loops.items()}
    first = ours.encode(batches[0], topic="orders").value[0].as_py()
    yield Figure(
        name="part: JSON encoding, keys and values",
        value=rows / messages_s,
        unit="rows/s",
        peer=max(peers.values()),
        peer_name="orjson loop",
        target=Target(at_least=1_000_000, per_peer=5),
        details={"loops": peers, "message": first.decode(), "message_bytes": len(first)},
    )
    yield Figure(name="part: JSON encoding, lines of a file", value=rows / lines_s, unit="rows/s")
    yield from _parquet(whole, batches)
    yield _csv(whole, batches)
    yield _protobuf(batches)
    yield from _reading(batches[:8])


def _parquet(whole: RowBatch, batches: Sequence[RowBatch]) -> Iterator[Figure]:
    table = _table(whole)
    group_rows = 131_072
    for compression in ("none", "zstd"):
        context = _file_context(ParquetOptions(), updated=True, compression=compression)
        ours_s = fastest_s(lambda context=context: _file(ParquetEncoder(context), batches))  # type: ignore[misc]
        level = 3 if compression == "zstd" else None
        bare_s = fastest_s(
            lambda compression=compression, level=level: pq.write_table(  # type: ignore[misc]
                table, io.BytesIO(), row_group_size=group_rows, compression=compression, compression_level=level
            )
        )
        yield Figure(
            name=f"part: Parquet encoding, compression {compression}",
            value=len(whole) / ours_s,
            unit="rows/s",
            peer=len(whole) / bare_s,
            peer_name="bare write_table",
            details={"bytes": len(_file(ParquetEncoder(context), batches))},
        )


def _csv(whole: RowBatch, batches: Sequence[RowBatch]) -> Figure:
    table = _table(whole)
    ours_s = fastest_s(lambda: _file(CsvEncoder(_file_context(CsvOptions())), batches))
    bare_s = fastest_s(lambda: csv.write_csv(table, io.BytesIO()))
    return Figure(
        name="part: CSV encoding",
        value=len(whole) / ours_s,
        unit="rows/s",
        peer=len(whole) / bare_s,
        peer_name="bare write_csv",
    )


def _protobuf(batches: Sequence[RowBatch]) -> Figure:
    """Both write the same bytes for the key and value of each row."""
    context = EncoderContext(changefeed="bench", envelope=Envelope(updated=True), options=ProtobufOptions())
    ours = ProtobufEncoder(context)
    ours_s = fastest_s(lambda: [ours.encode(batch, topic="orders") for batch in batches])
    sample = batches[0]
    loop_s = fastest_s(lambda: _protobuf_loop(sample), times=2)
    found = ours.encode(sample, topic="orders")
    if list(zip(found.key.to_pylist(), found.value.to_pylist(), strict=True)) != _protobuf_loop(sample):
        raise AssertionError("the encoder's messages are not those of the official library")
    return Figure(
        name="part: Protocol Buffers encoding, keys and values",
        value=len(batches) * _BATCH_ROWS / ours_s,
        unit="rows/s",
        peer=len(sample) / loop_s,
        peer_name="protobuf loop",
        target=Target(at_least=1_000_000, per_peer=5),
        details={"message_bytes": len(found.value[0].as_py())},
    )


def _protobuf_loop(rows: RowBatch) -> list[tuple[bytes, bytes]]:
    stamps = rows.column("updated").to_pylist()
    messages = []
    for row, stamp in zip(rows.column("after").to_pylist(), stamps, strict=True):
        key, value = message_class("Key")(), message_class("Message")()
        key.key["id"].int64_value = row["id"]
        value.wrapped.updated = f"{stamp['wall']}.{stamp['logical']:010d}"
        for name, held in row.items():
            _fill(value.wrapped.after.values[name], rows.schema.column(name).type, held)
        messages.append((key.SerializeToString(deterministic=True), value.SerializeToString(deterministic=True)))
    return messages


def _fill(value: Any, type_: ColumnType, held: Any) -> None:
    name = field_name(type_, ProtobufOptions())
    if held is None:
        return
    if name == "timestamp_value":
        value.timestamp_value.FromDatetime(held)
    elif name == "decimal_value":
        value.decimal_value.value = held
    else:
        setattr(value, name, held)


def _reading(batches: Sequence[RowBatch]) -> Iterator[Figure]:
    """Reading files by column, compared with one row at a time for fewer rows."""
    schema, rows, few = batches[0].schema, len(batches) * _BATCH_ROWS, batches[0].slice(0, 2000)
    json_context = _file_context(JsonOptions(), updated=True)
    parquet_context = _file_context(ParquetOptions(), updated=True)
    forms: list[tuple[str, Encoder, Decoder]] = [
        ("JSON lines", JsonEncoder(json_context), JsonDecoder(json_context)),
        ("Parquet", ParquetEncoder(parquet_context), ParquetDecoder(parquet_context)),
    ]
    for name, encoder_, decoder in forms:
        body, small = _file(encoder_, batches), _file(encoder_, [few])
        ours_s = fastest_s(lambda decoder=decoder, body=body: decoder.rows(schema, body))  # type: ignore[misc]
        default_s = fastest_s(lambda decoder=decoder, small=small: Decoder.rows(decoder, schema, small), times=1)  # type: ignore[misc]
        yield Figure(
            name=f"part: reading {name}",
            value=rows / ours_s,
            unit="rows/s",
            peer=len(few) / default_s,
            peer_name="a row at a time",
        )


def _file_context(options: Any, *, updated: bool = False, compression: str = "none") -> EncoderContext:
    envelope = Envelope(updated=updated, key_in_value=True)
    return EncoderContext(
        changefeed="bench", envelope=envelope, options=options, output="files", compression=compression
    )


def _file(encoder_: Encoder, batches: Sequence[RowBatch]) -> bytes:
    body = encoder_.open_body("orders")
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])


def _table(rows: RowBatch) -> pa.Table:
    """Return only the columns of the table, for Arrow's writers."""
    after = rows.column("after")
    return pa.table(dict(zip(rows.schema.after_type.names, after.flatten(), strict=True)))


def _loop(rows: RowBatch, *, as_text: bool) -> list[tuple[bytes, bytes]]:
    after = rows.column("after")
    if as_text:
        after = _timestamps_as_text(after)
    stamps = rows.column("updated").to_pylist()
    messages = []
    for row, stamp in zip(after.to_pylist(), stamps, strict=True):
        value: dict[str, Any] = {"after": row, "updated": f"{stamp['wall']}.{stamp['logical']:010d}"}
        messages.append((orjson.dumps([row["id"]]), orjson.dumps(value)))
    return messages


def _timestamps_as_text(structs: pa.StructArray) -> pa.StructArray:
    arrays = [structs.field(index) for index in range(structs.type.num_fields)]
    names = [structs.type.field(index).name for index in range(structs.type.num_fields)]
    arrays = [
        pc.strftime(array, format="%Y-%m-%dT%H:%M:%SZ") if pa.types.is_timestamp(array.type) else array
        for array in arrays
    ]
    return pa.StructArray.from_arrays(arrays, names=names)
