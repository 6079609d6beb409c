"""The rate of the encoder, as a ratio to a loop over rows: a Python loop that creeps in shows here.

The row: two bigint, three short texts, a double, an int and a timestamptz, keyed by the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions

from cdc_core import Column, ColumnType, EncoderContext, EnvelopeOptions, Kind, Op, RowBatch, TableName, TableSchema

_BIGINT = ColumnType(kind=Kind.INT, source="bigint", bits=64)
_TEXT = ColumnType(kind=Kind.STRING, source="text")
_TYPES = {
    "id": _BIGINT,
    "customer": _BIGINT,
    "city": _TEXT,
    "status": _TEXT,
    "note": _TEXT,
    "price": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "amount": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "created": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
}
SCHEMA = TableSchema(
    name=TableName("shop", "public", "orders"),
    version=1,
    columns=tuple(Column(name=name, type=type_) for name, type_ in _TYPES.items()),
    primary_key=("id",),
)
_START_US = 1_760_000_000_000_000


def rows_of_facts(rows: int, *, transaction: int = 1000, deletes: int = 0) -> RowBatch:
    """Return updates of *rows* random rows, in transactions of *transaction* rows; every *deletes*-th is a delete."""
    random = np.random.default_rng(7)
    ids = pa.array(np.arange(10**9, 10**9 + rows))
    texts = [pa.array(words) for words in (["amsterdam", "boston", "seattle"], ["new", "paid", "sent"])]
    columns = [
        ids,
        pa.array(random.integers(1, 10**6, rows)),
        *(words.take(pa.array(random.integers(0, len(words), rows))) for words in texts),
        pa.array([f"note {number % 9973}" for number in range(rows)]),
        pa.array(np.round(random.random(rows) * 1000, 2)),
        pa.array(random.integers(0, 100, rows).astype(np.int32)),
        pa.array(_START_US + np.cumsum(random.integers(1, 2000, rows))).view(pa.timestamp("us", "UTC")),
    ]
    deleted = np.zeros(rows, np.bool_)
    if deletes:
        deleted[::deletes] = True
    wall = (_START_US + np.arange(rows) // transaction * 500) * 1000
    return RowBatch.of(
        SCHEMA,
        op=pa.array(np.where(deleted, Op.DELETE, Op.UPDATE).astype(np.uint8)),
        updated=RowBatch.timestamps(pa.array(wall), pa.array(np.zeros(rows, np.int32))),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=RowBatch.struct(SCHEMA.after_type, columns, mask=pa.array(deleted) if deletes else None),
    )


def encoder_of_facts() -> JsonEncoder:
    """Return the encoder of the measurements, with the options updated and key_in_value."""
    envelope = EnvelopeOptions(updated=True, key_in_value=True)
    return JsonEncoder(EncoderContext(changefeed="orders", envelope=envelope, options=JsonOptions()))


def seconds(work: Callable[[], Any]) -> float:
    """Return the least time of three that *work* takes."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def encode_row_by_row(rows: RowBatch) -> list[bytes]:
    names = ("after", "key", "updated")
    columns = [rows.column(name).to_pylist() for name in names]
    return [
        orjson.dumps(
            {"after": after, "key": list(key.values()), "updated": f"{updated['wall']}.{updated['logical']:010d}"}
        )
        for after, key, updated in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize("deletes", [0, 10])
def test_encoding_is_at_least_five_times_as_fast_as_a_loop_over_rows(deletes: int) -> None:
    rows, encoder = rows_of_facts(20_000, deletes=deletes), encoder_of_facts()
    body = encoder.open_body("orders")
    assert len(bytes(body.write(rows)).splitlines()) == len(encode_row_by_row(rows)) == len(rows)
    loop = seconds(lambda: encode_row_by_row(rows))
    assert loop / seconds(lambda: encoder.encode(rows, topic="orders")) > 5
    assert loop / seconds(lambda: body.write(rows)) > 5
