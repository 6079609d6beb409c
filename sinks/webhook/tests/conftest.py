"""A small encoder, sinks to write rows to, and an endpoint that records its requests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, TEXT, Change, table
from cdc_conformance.rows import rows as rows_of
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


def new_encoder(cls: type[SmallEncoder] = SmallEncoder) -> SmallEncoder:
    return cls(EncoderContext(changefeed="feed", envelope=Envelope(), options=None))


def make_rows(
    ids: Sequence[int], *, notes: Sequence[str] | None = None, schema: TableSchema = ORDERS, wall: int = 1
) -> RowBatch:
    """Return updates of rows, one nanosecond apart, starting at *wall*."""
    texts = notes or ["x"] * len(ids)
    changes = [
        Change({"id": id_, "note": text}, updated=Timestamp(wall + number))
        for number, (id_, text) in enumerate(zip(ids, texts, strict=True))
    ]
    return rows_of(schema, changes)


def config(*, retry: Mapping[str, Any] = QUICK, **flush: Any) -> dict[str, Any]:
    """Return `webhook_sink_config` with quick retries. *flush* are entries of `Flush`; its Frequency is a minute."""
    if flush:
        flush.setdefault("Frequency", "1m")
    return {"webhook_sink_config": json.dumps({"Flush": flush, "Retry": dict(retry)})}


def context_of(uri: str, values: Mapping[str, Any], **changes: Any) -> SinkContext:
    fields: dict[str, Any] = {
        "changefeed": "feed",
        "epoch": 7,
        "uri": uri,
        "options": parse_options(WebhookOptions, values, owner="sink 'webhook'"),
        "encoder": new_encoder(),
        "tables": (ORDERS.name, USERS.name),
    }
    return SinkContext(**(fields | changes))


class TimelessEncoder(SmallEncoder):
    """Messages that are equal for all versions of a row."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        messages = super().encode(rows, topic=topic)
        return replace(messages, value=pa.array([b'{"key": [1]}'] * len(rows), pa.large_binary()))


@pytest.fixture
def encoder() -> Encoder:
    return new_encoder()


@pytest.fixture
def timeless() -> Encoder:
    """An encoder whose messages are equal for all versions of a row."""
    return new_encoder(TimelessEncoder)


@pytest.fixture
def lines() -> Encoder:
    """An encoder of CSV."""
    return new_encoder(CsvEncoder)


@pytest.fixture
def rows() -> Callable[..., RowBatch]:
    return make_rows


@pytest.fixture
def users() -> TableSchema:
    """Another table."""
    return USERS


@pytest.fixture
def flush() -> Callable[..., dict[str, Any]]:
    return config


@pytest.fixture
def context() -> Callable[..., SinkContext]:
    return context_of


@pytest.fixture
def server(webhook_server: WebhookServer) -> Iterator[WebhookServer]:
    """The endpoint of the session. Its faults are removed after the test."""
    yield webhook_server
    webhook_server.faults()


@pytest.fixture
def path(server: WebhookServer) -> str:
    """A path that only this test uses."""
    return server.new_path()


@pytest.fixture
def open_sink(server: WebhookServer, path: str) -> Iterator[Callable[..., WebhookSink]]:
    """Return a function that opens a sink for the path and begins a slice. The sinks are closed after the test."""
    opened: list[WebhookSink] = []

    def make(values: Mapping[str, Any] | None = None, /, *, at: WebhookServer = server, **changes: Any) -> WebhookSink:
        options = {**at.trust, **config(), **(values or {})}
        opened.append(WebhookSink(context_of(changes.pop("uri", at.uri(path)), options, **changes)))
        opened[-1].begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
        return opened[-1]

    yield make
    for sink in opened:
        sink.close()


@pytest.fixture
def open_resolved_sink(server: WebhookServer, path: str) -> Iterator[Callable[..., WebhookResolvedSink]]:
    """Return a function that opens a resolved sink for the path. They are closed after the test."""
    opened: list[WebhookResolvedSink] = []

    def make(values: Mapping[str, Any] | None = None, /, **changes: Any) -> WebhookResolvedSink:
        options = {**server.trust, **config(), **(values or {})}
        opened.append(WebhookResolvedSink(context_of(changes.pop("uri", server.uri(path)), options, **changes)))
        return opened[-1]

    yield make
    for sink in opened:
        sink.close()


class Proxy:
    """A TCP proxy in front of a port. `cut` makes its present connections silent, without closing them.

    A new connection takes `connect_s` until it passes on data.
    """

    connect_s = 0.0

    def __init__(self, port: int) -> None:
        self._port = port
        self._silent: set[socket.socket] = set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Pass on no more data on the present connections."""
        self._silent.update(end for pair in self._pairs for end in pair)

    def close(self) -> None:
        for end in [self._listening, *(end for pair in self._pairs for end in pair)]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Event().wait(self.connect_s)
                pair = client, socket.create_connection(("127.0.0.1", self._port))
                self._pairs.append(pair)
                for source, target in (pair, pair[::-1]):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source not in self._silent:
                    target.sendall(data)


@pytest.fixture
def proxy(server: WebhookServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()
