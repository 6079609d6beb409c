"""The log into an endpoint that takes its time, delivered by one task and by several. All have the same slots."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks.bench_webhook import WebhookFeed
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.webhook_endpoint import slow_endpoint
from benchmarks.workload import create_table, update_rows

_TASKS = 4
_KEYS = 10_000
_CHANGES = 40_000
_STEPS = 4
_DELAY_S = 0.04
"""Of each request with 100 rows: 2,500 rows a second, one request at a time."""


def run(bench: Bench) -> Iterator[Figure]:
    """Measure from the first saved step with rows. A writer that sends several requests at a time is measured too."""
    rates = {(tasks, requests): _rate(bench, tasks, requests) for tasks, requests in ((1, 1), (_TASKS, 1), (1, _TASKS))}
    for (tasks, requests), rate in rates.items():
        name = f"log into a slow endpoint, delivery_tasks: {tasks}, parallel_requests: {requests}"
        yield Figure(name=name, value=rate, unit="rows/s")
    speed_up = rates[_TASKS, 1] / rates[1, 1]
    yield Figure(name=f"speed-up by delivery_tasks: {_TASKS}", value=speed_up, unit="x", target=Target(at_least=3.0))


def _rate(bench: Bench, tasks: int, requests: int) -> float:
    name = f"bench_delivery_{tasks}_{requests}"
    with slow_endpoint(_DELAY_S) as port, bench.scratch(name) as scratch, bench.database(name) as uri:
        create_table(uri, _KEYS)
        flush = {"Flush": {"Messages": 100, "Frequency": "1s"}}
        options = {
            "webhook_sink_config": json.dumps(flush).replace('"', '\\"'),
            "delivery_tasks": tasks,
            "parallel_requests": requests,
            "max_step_rows": _CHANGES // _STEPS,
            "initial_scan": "no",
        }
        sink, spark = f"webhook-http://127.0.0.1:{port}/hook", {"master": f"local[{_TASKS},4]"}
        feed = WebhookFeed(scratch, uri, sink=sink, options=options, spark=spark)
        feed.run_once()
        update_rows(uri, _CHANGES, keys=_KEYS)
        run = feed.run_once()
    if run.rows != _CHANGES:
        raise RuntimeError(f"{run.rows} rows delivered, {_CHANGES} expected")
    return run.rate
