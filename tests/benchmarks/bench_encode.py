"""JSON encoding alone, beside a loop that calls orjson for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.rows import row_batch
from benchmarks.timing import fastest_s
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions

from cdc_core import EncoderContext, EnvelopeOptions, RowBatch

__all__ = ["encoder", "run"]

_BATCH_ROWS = 16_384


def encoder() -> JsonEncoder:
    """Return the encoder of the benchmarks: wrapped, with `updated`."""
    context = EncoderContext(changefeed="bench", envelope=EnvelopeOptions(updated=True), options=JsonOptions())
    return JsonEncoder(context)


def run(bench: Bench) -> Iterator[Figure]:
    """One process; the peer's loop too. Both make key and value of each row, with the same content."""
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
