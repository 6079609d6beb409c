"""The webhook sink alone, from Arrow rows to acknowledged requests, compared with a plain loop over the same client.

Both send the same rows in batches of the same size over TLS to one endpoint in another process, which accepts
everything and looks at nothing. Both send the same number of requests in parallel, over connections that stay open.
They take turns for several rounds, so that a disturbance of the machine affects both, and the medians are compared.

Both are timed from the first call until every request is acknowledged. The sink starts with Arrow rows: it encodes
them as JSON, cuts them into requests, keeps the order of each key, and gives each request an id. The plain loop is the
usual code with httpx2: prepared bodies, and several tasks that call `AsyncClient.post`. A second loop uses the
transport of the client without the client: the minimum with httpx2.

Finally, a whole changefeed writes a backlog of updates from PostgreSQL to the same endpoint.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
from benchmarks.bench_encode import encoder
from benchmarks.context import Bench
from benchmarks.feed import Arrival, Feed
from benchmarks.report import Figure, Target
from benchmarks.rows import batches_of, row_batch, sink_context, write_slice
from benchmarks.timing import take_turns
from benchmarks.workload import create_table, update_rows
from cdc_encoder_json.encoder import JsonEncoder
from cdc_sink_kafka.demo.servers import Certificates, make_certificates
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.sink import WebhookSink

from cdc_core import EncoderContext, Envelope, RowBatch

_PARALLEL = 16
_REQUESTS = {1: 2_000, 100: 1_000}
"""Requests in each round, by the number of rows in a request."""
_MIN_REQUESTS = 300
_KEYS = 10_000
_MAX_CHANGES = 1_000_000
_STEPS = 5
_HEADERS = {"content-type": "application/json"}


def run(bench: Bench) -> Iterator[Figure]:
    share = min(1.0, bench.sizes.part_rows / 500_000)
    with bench.scratch("webhook") as scratch, _endpoint(scratch) as (port, certificates):
        for rows_each, requests in _REQUESTS.items():
            count = rows_each * max(_MIN_REQUESTS, int(requests * share))
            yield _measured(port, certificates, rows=row_batch(count), rows_each=rows_each)
        yield _whole_feed(bench, port, certificates, scratch)


class WebhookFeed(Feed):
    """A changefeed into the endpoint. It does not know when rows arrive there."""

    def look_before(self) -> None:
        """Nothing to look at."""

    def first_arrival(self) -> Arrival | None:
        return None


def _whole_feed(bench: Bench, port: int, certificates: Certificates, scratch: Path) -> Figure:
    """Measure `cdc run --once` over a backlog of updates, from the first saved step with rows."""
    changes = min(bench.sizes.log_changes, _MAX_CHANGES)
    flush = {"Flush": {"Messages": 100, "Frequency": "1s"}}
    options = {
        "ca_cert": _trust(certificates),
        "webhook_sink_config": json.dumps(flush).replace('"', '\\"'),
        "max_step_rows": changes // _STEPS,
    }
    with bench.database("bench_webhook") as uri:
        create_table(uri, _KEYS)
        feed = WebhookFeed(scratch, uri, sink=f"webhook-https://localhost:{port}/hook", options=options)
        feed.run_once()
        update_rows(uri, changes, keys=_KEYS)
        ours = feed.run_once()
    if ours.rows != changes:
        raise RuntimeError(f"{ours.rows} rows delivered, {changes} expected")
    return Figure(
        name="log to JSON in a webhook over TLS, 100 rows a request",
        value=ours.rate,
        unit="rows/s",
        target=Target(at_least=10_000),
        peak_rss=ours.peak_rss,
        details=ours.details(),
    )


def _measured(port: int, certificates: Certificates, *, rows: RowBatch, rows_each: int) -> Figure:
    sink = _sink(port, certificates, rows_each=rows_each)
    bodies = _bodies(rows, rows_each)
    try:
        with _PlainLoop(port, certificates) as plain:
            turns = take_turns(
                {
                    "sink": lambda: _write_slice(sink, rows),
                    "client": lambda: plain.run(bodies, plain.post),
                    "transport": lambda: plain.run(bodies, plain.post_by_transport),
                }
            )
    finally:
        sink.close()
    rates = {name: [len(rows) / turn.elapsed_s for turn in taken] for name, taken in turns.items()}
    medians = {name: statistics.median(taken) for name, taken in rates.items()}
    plural = "row" if rows_each == 1 else "rows"
    return Figure(
        name=f"part: webhook sink over TLS, {rows_each} {plural} a request",
        value=medians["sink"],
        unit="rows/s",
        peer=medians["client"],
        peer_name="plain client",
        target=Target(at_least=10_000 if rows_each == 100 else None, per_peer=0.8),
        details={
            "rounds": rates,
            "parallel_requests": _PARALLEL,
            "body_bytes": sum(map(len, bodies)) / len(bodies),
            "of_plain_transport": medians["sink"] / medians["transport"],
        },
    )


@contextmanager
def _endpoint(directory: Path) -> Iterator[tuple[int, Certificates]]:
    """Yield the port and the certificates of an endpoint in its own process."""
    certificates = make_certificates(directory / "certificates")
    command = [sys.executable, str(Path(__file__).with_name("webhook_endpoint.py"))]
    with subprocess.Popen(
        [*command, str(certificates.server_cert), str(certificates.server_key)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), certificates
        finally:
            process.kill()


class _PlainLoop:
    """The client and its event loop, without the sink."""

    def __init__(self, port: int, certificates: Certificates) -> None:
        self._url = f"https://localhost:{port}/hook"
        context = ssl.create_default_context(cafile=str(certificates.ca))
        limits = httpx2.Limits(max_connections=_PARALLEL, max_keepalive_connections=_PARALLEL)
        self._transport = httpx2.AsyncHTTPTransport(verify=context, http2=True, limits=limits)
        self._client = httpx2.AsyncClient(verify=context, http2=True, limits=limits, timeout=3.0)
        self._runner = asyncio.Runner()

    def __enter__(self) -> _PlainLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.run(self._transport.aclose())
        self._runner.close()

    def run(self, bodies: Sequence[bytes], post: Callable[[bytes], object]) -> None:
        self._runner.run(self._all(bodies, post))

    async def _all(self, bodies: Sequence[bytes], post: Callable[[bytes], object]) -> None:
        left = iter(bodies)

        async def work() -> None:
            for body in left:
                await post(body)  # type: ignore[misc]

        async with asyncio.TaskGroup() as group:
            for _ in range(_PARALLEL):
                group.create_task(work())

    async def post(self, body: bytes) -> None:
        response = await self._client.post(self._url, content=body, headers=_HEADERS)
        response.raise_for_status()

    async def post_by_transport(self, body: bytes) -> None:
        request = httpx2.Request("POST", self._url, content=body, headers=_HEADERS)
        response = await self._transport.handle_async_request(request)
        await response.aread()
        assert response.status_code == 200


def _sink(port: int, certificates: Certificates, *, rows_each: int) -> WebhookSink:
    flush = {"Messages": rows_each, "Frequency": "1s"} if rows_each > 1 else {}
    options = WebhookOptions(
        webhook_sink_config={"Flush": flush}, parallel_requests=_PARALLEL, ca_cert=_trust(certificates)
    )
    return WebhookSink(sink_context(f"webhook-https://localhost:{port}/hook", options, _encoder()))


def _trust(certificates: Certificates) -> str:
    return base64.b64encode(certificates.ca.read_bytes()).decode()


def _encoder() -> JsonEncoder:
    envelope = Envelope(updated=True, key_in_value=True, topic_in_value=True)
    return JsonEncoder(EncoderContext(changefeed="bench", envelope=envelope, options=encoder().context.options))


def _bodies(rows: RowBatch, rows_each: int) -> list[bytes]:
    values = _encoder().encode(rows, topic="orders").value.to_pylist()
    batches = (values[start : start + rows_each] for start in range(0, len(values), rows_each))
    return [b'{"payload":[' + b",".join(batch) + b'],"length":%d}' % len(batch) for batch in batches]


def _write_slice(sink: WebhookSink, rows: RowBatch) -> None:
    assert write_slice(sink, batches_of(rows)).messages == len(rows)
