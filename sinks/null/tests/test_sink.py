"""What the null sink counts, and how long it takes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, Change, table
from cdc_conformance.rows import rows as rows_of
from cdc_sink_null.options import NullOptions
from cdc_sink_null.sink import NullSink

from cdc_core import (
    Duration,
    Encoder,
    EncoderContext,
    Envelope,
    Flushed,
    MessageBatch,
    RowBatch,
    SinkContext,
    Timestamp,
)

ROWS = rows_of(table("orders", {"id": INT8}), [Change({"id": number}) for number in range(3)])


class FiveBytes(Encoder):
    """Messages of a key of two bytes and a value of three."""

    file_extension = ".txt"

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        key, value = (pa.array([text] * len(rows), pa.binary(len(text))) for text in (b"kk", b"vvv"))
        return MessageBatch(topic=topic, key=key, value=value, updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return b""


def sink(delay_s: float = 0.0) -> NullSink:
    encoder = FiveBytes(EncoderContext(changefeed="feed", envelope=Envelope(), options=None))
    options = NullOptions(delay=Duration(delay_s))
    return NullSink(SinkContext(changefeed="feed", epoch=1, uri="null://", options=options, encoder=encoder))


def test_what_was_encoded_since_the_last_flush_is_counted() -> None:
    null = sink()
    null.emit(ROWS)
    null.emit(ROWS)
    assert null.flush() == Flushed(messages=6, bytes=30)
    assert null.flush() == Flushed()


def test_each_flush_takes_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("cdc_sink_null.sink.time.sleep", slept.append)
    sink().flush()
    sink(0.25).flush()
    assert slept == [0.25]
