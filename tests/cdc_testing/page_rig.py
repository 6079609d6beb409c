"""A store with changefeeds in many states, and a server whose page shows it.

`python -m cdc_testing.page_rig DIRECTORY` serves one until it is ended.
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_testing.stored import node

from cdc_core import Frontier, Span, Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.options import parse_options
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import DeadLetter, Progress, ProgressStore, store_url
from cdc_core.telemetry import metrics
from cdc_core.telemetry.status import Retrying
from cdc_core.telemetry.tally import Tally, keep_gauges
from cdc_core.web.access.access import Access
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Endpoint
from cdc_core.web.endpoints import PAGE_ENDPOINTS
from cdc_core.web.requests import Deployment
from cdc_core.web.server import WebServer, application

HOSTILE = "<script>document.title='taken'</script>\"'&"
"""A text that would be a script on a page that does not escape it."""
_TABLES = (
    *("orders", "customers", "payments", "stock", "shipments", "invoices", "returns", "carts"),
    *("sessions", "prices"),
)
_AREAS = ("eu", "us", "asia", "shop", "web", "billing", "search", "stats", "audit", "mobile")


def deployment(store: ProgressStore, plugins: PluginHost | None = None, **environ: str) -> Deployment:
    host = PluginHost.load() if plugins is None else plugins
    return Deployment(store, host, environ=environ, keep_secret=lambda _: None)


@contextmanager
def served(
    shown: Deployment, *, address: str = "127.0.0.1:0", more: list[Endpoint] | None = None, **settings: Any
) -> Iterator[WebServer]:
    """Serve the page of *shown*."""
    values = {"max_rate": 10_000, **settings}
    access = Access(
        Address.parse(address, option="--listen"), parse_options(AccessSettings, values, owner="the server")
    )
    with WebServer(application([*PAGE_ENDPOINTS, *(more or [])], shown, access), access) as server:
        yield server


class Shown:
    """Changefeeds whose progress is as if they ran."""

    def __init__(self, store: ProgressStore) -> None:
        self.store = store
        store.open()
        self.nodes = {
            name: store.nodes.join(node(name, locality), lease_s=86_400)
            for name, locality in (("ada", "region=eu-west-1,zone=a"), ("bob", "region=eu-west-1,zone=b"))
        }
        self.rows: dict[str, float] = {}

    def job(self, name: str, *, on: str | None = "ada", sink: str = "kafka://broker-1:9092", **status: Any) -> None:
        """Create a job that runs on the node *on*."""
        written = {
            "source": "postgresql://cdc:${SHOP_PASSWORD}@db.example:5432/shop",
            "tables": [f"public.{table}" for table in _TABLES[:3]],
            "sink": sink,
            "format": "json",
            "options": {"updated": "true", "resolved": "1s", "on_error": "dead_letter"},
        }
        definition = {
            "source": "postgresql://cdc:***@db.example:5432/shop",
            "tables": written["tables"],
            "sink": sink,
            "format": "json",
            "written": written,
            "literal_secrets": [],
            "plugins": [],
        }
        self.store.jobs.create(name, definition, owner="ann", locality=Locality())
        if on is not None:
            assert self.store.claims.adopt(name, self.nodes[on]) is not None
            self.step(name, rows=0, **status)

    def step(
        self, name: str, *, rows: float, lag_s: float = 1.2, latency_s: float = 0.3, letters: int = 0, **status: Any
    ) -> None:
        """Save progress and a status, as after a step that delivered *rows*."""
        job = self.store.jobs.find(name)
        assert job is not None
        self.rows[name] = self.rows.get(name, 0) + rows
        found = self.store.progress.load(name)
        tally = Tally() if found is None else found.tally
        tally.add(metrics.STEPS)
        tally.add(metrics.ROWS, rows)
        tally.add(metrics.BYTES, rows * 180)
        for stage, seconds in (("source", 0.25), ("encode", 0.18), ("sink", 0.5), ("store", 0.04)):
            tally.add(metrics.STAGE_SECONDS, seconds, stage)
        for factor, times in ((0.4, 50), (1, 40), (3, 9), (6, 1)):
            tally.observe(metrics.COMMIT_LATENCY, latency_s * factor, times=times if rows else 0)
        keep_gauges(tally, {"retained_bytes": 48e6 + lag_s * 2e6}, at=time.time())
        now = time.time_ns()
        frontier = Frontier([Span(f"shop.public.{table}") for table in _TABLES[:3]])
        for index, table in enumerate(_TABLES[:3]):
            frontier.forward(Span(f"shop.public.{table}"), Timestamp(now - int((lag_s - index * 0.3) * 1e9)))
        refused = [
            DeadLetter(
                table="shop.public.orders",
                key=f"[{1000 + number}]",
                updated=Timestamp(now),
                stage="sink",
                error="the broker refused a message of 1,204,331 bytes: larger than message.max.bytes",
            )
            for number in range(letters)
        ]
        self.store.progress.save(
            name, job.epoch, Progress(token={}, frontier=frontier, counters=tally.saved()), dead_letters=refused
        )
        error = status.get("waiting_for")
        values: Mapping[str, Any] = {
            "phase": "running",
            "retrying": None if error is None else Retrying.after(None, error).to_json(),
            "host": "here",
            "pid": 7,
            "rows_per_s": rows,
            "waiting_on": "changes",
            **status,
        }
        self.store.statuses.save(name, job.epoch, values)

    def many(self, count: int) -> list[str]:
        """Create *count* jobs, most of which run; return their names."""
        names = [f"{area}-{table}" for area in _AREAS for table in _TABLES][:count]
        for index, name in enumerate(names):
            self.job(
                name, on=("ada", "bob")[index % 2], sink=("kafka://broker-1:9092", "s3://lake/shop")[index % 3 > 0]
            )
            self.step(name, rows=40 + index * 7, letters=3 if index == 4 else 0)
            if index == 5:
                self.step(
                    name, rows=0, lag_s=95, waiting_on="sink 'kafka'", waiting_for="broker-1:9092 does not answer"
                )
            if index == 7:
                Changefeeds(self.store).pause(name, "maintenance of the warehouse")
                self.store.claims.settle(name, self.nodes["bob"], "stopped")
            if index == 11:
                self.store.claims.settle(name, self.nodes["bob"], "failed", "the slot was dropped at the source")
        return names

    def deliver(self, names: Sequence[str], over: threading.Event) -> None:
        """Take a step of the changefeeds that `many` has made once a second, until *over* is set."""
        turn = 0
        while not over.wait(1):
            turn += 1
            for index, name in enumerate(names[:12]):
                if index == 5:
                    waits = {"waiting_on": "sink 'kafka'", "waiting_for": "no broker answers"}
                    self.step(name, rows=0, lag_s=95 + turn, **waits)
                elif index not in (7, 11):
                    wave = 0.5 + 0.5 * math.sin((turn + index * 9) / 7)
                    drawn = random.Random(turn * 100 + index).random()
                    self.step(
                        name,
                        rows=round(400 + 900 * wave + 200 * drawn),
                        lag_s=1 + wave + drawn / 2,
                        latency_s=0.2 + 0.3 * wave,
                    )


def main(directory: str, address: str, count: str) -> None:
    store = ProgressStore(store_url(Path(directory)))
    shown = Shown(store)
    names = shown.many(int(count))
    with served(deployment(store), address=address) as server:
        print(server.url + "/ui", flush=True)
        shown.deliver(names, threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
