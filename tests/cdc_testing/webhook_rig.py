"""The parts of the webhook sink at one endpoint, at a path that no other test uses, and a small encoder for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from cdc_conformance import rows as samples
from cdc_conformance.rows import INT8, TEXT, Change, table
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.resolved_sink import WebhookResolvedSink
from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.webhook_server import WebhookServer

from cdc_core import (
    Encoder,
    EncoderContext,
    Envelope,
    MessageBatch,
    RowBatch,
    SinkContext,
    SliceInfo,
    TableSchema,
    Timestamp,
    parse_options,
)

ORDERS = table("orders", {"id": INT8, "note": TEXT})
USERS = table("users", {"id": INT8, "note": TEXT})
QUICK = {"Max": 3, "Backoff": "10ms"}


class SmallEncoder(Encoder):
    """Messages with `key`, `topic`, `note` and the wall time; with `lines`, rows of CSV without keys."""

    file_extension = ".ndjson"
    lines = False

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = [list(key.values()) for key in rows.column("key").to_pylist()]
        walls = rows.column("updated").field("wall").to_pylist()
        notes = [after["note"] for after in rows.column("after").to_pylist()]
        values = [
            f"{key[0]},{note}\n" if self.lines else json.dumps({"key": key, "note": note, "topic": topic, "wall": wall})
            for key, note, wall in zip(keys, notes, walls, strict=True)
        ]
        return MessageBatch(
            topic=topic,
            key=pa.array([None if self.lines else json.dumps(key).encode() for key in keys], pa.large_binary()),
            value=pa.array([value.encode() for value in values], pa.large_binary()),
            updated=rows.column("updated"),
        )

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return f'{{"resolved":"{timestamp}"}}'.encode()


class CsvEncoder(SmallEncoder):
    """The same rows as CSV."""

    file_extension = ".csv"
    lines = True


class TimelessEncoder(SmallEncoder):
    """Messages that are equal for all versions of a row."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        messages = super().encode(rows, topic=topic)
        return replace(messages, value=pa.array([b'{"key": [1]}'] * len(rows), pa.large_binary()))


def encoder(cls: type[SmallEncoder] = SmallEncoder) -> SmallEncoder:
    return cls(EncoderContext(changefeed="feed", envelope=Envelope(), options=None))


def rows(
    ids: Sequence[int], *, notes: Sequence[str] | None = None, schema: TableSchema = ORDERS, wall: int = 1
) -> RowBatch:
    """Return updates of rows, one nanosecond apart, starting at *wall*."""
    texts = notes or ["x"] * len(ids)
    changes = [
        Change({"id": id_, "note": text}, updated=Timestamp(wall + number))
        for number, (id_, text) in enumerate(zip(ids, texts, strict=True))
    ]
    return samples.rows(schema, changes)


def flush(*, retry: Mapping[str, Any] = QUICK, **entries: Any) -> dict[str, Any]:
    """Return `webhook_sink_config` with quick retries and these *entries* of `Flush`; its Frequency is a minute."""
    if entries:
        entries.setdefault("Frequency", "1m")
    return {"webhook_sink_config": json.dumps({"Flush": entries, "Retry": dict(retry)})}


def context(uri: str, values: Mapping[str, Any], **changes: Any) -> SinkContext:
    fields: dict[str, Any] = {
        "changefeed": "feed",
        "epoch": 7,
        "uri": uri,
        "options": parse_options(WebhookOptions, values, owner="sink 'webhook'"),
        "encoder": encoder(),
        "tables": (ORDERS.name, USERS.name),
    }
    return SinkContext(**(fields | changes))


class WebhookRig:
    """Opens parts of the sink for `path` of *server*; *opened* closes them."""

    def __init__(self, server: WebhookServer, opened: ExitStack) -> None:
        self.server = server
        self.path = server.new_path()
        self._opened = opened

    def sink(
        self, values: Mapping[str, Any] | None = None, /, *, at: WebhookServer | None = None, **changes: Any
    ) -> WebhookSink:
        """Return a sink that has begun a slice, for the path of another server *at* if there is one."""
        sink = self._opened.enter_context(closing(WebhookSink(self._context(values, at or self.server, changes))))
        sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
        return sink

    def resolved_sink(self, values: Mapping[str, Any] | None = None, /, **changes: Any) -> WebhookResolvedSink:
        return self._opened.enter_context(closing(WebhookResolvedSink(self._context(values, self.server, changes))))

    def _context(self, values: Mapping[str, Any] | None, server: WebhookServer, changes: dict[str, Any]) -> SinkContext:
        options = {**server.trust, **flush(), **(values or {})}
        return context(changes.pop("uri", server.uri(self.path)), options, **changes)
