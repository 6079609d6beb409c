"""A scan on one, two and three nodes of one core into an endpoint that takes its time: the limit is outside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.node_rig import nodes_of, options
from benchmarks.report import Figure, Target
from benchmarks.webhook_endpoint import slow_endpoint
from benchmarks.workload import TABLE, create_table
from cdc_testing.nodes import Nodes

_NODES = (1, 2, 3)
_SPEED_UPS = {2: 1.8, 3: 2.5}
_ROWS = 120_000
_STEP_ROWS = 30_000
_DELAY_S = 0.04
"""Of each request with 100 rows: 2,500 rows a second and node."""


def run(bench: Bench) -> Iterator[Figure]:
    """Measure from the first saved step to the last: the start of Spark is not in it."""
    os.environ["CDC_CLUSTER_SECRET"] = "only-the-nodes-know-it"
    taken: dict[int, float] = {}
    with slow_endpoint(_DELAY_S) as port, bench.database("bench_nodes_source") as source:
        create_table(source, _ROWS)
        for count in _NODES:
            with nodes_of(bench, f"bench_nodes_{count}") as nodes:
                sink = bench.directory / "slow-endpoint"  # the store keeps no URL of a webhook, but where it is written
                sink.write_text(f"webhook-http://127.0.0.1:{port}/hook")
                taken[count] = _seconds(nodes, count, source, f"${{file:{sink}}}")
    for count, seconds in taken.items():
        yield Figure(name=f"scan into a slow endpoint, nodes: {count}", value=seconds, unit="s")
        if count in _SPEED_UPS:
            target = Target(at_least=_SPEED_UPS[count])
            yield Figure(name=f"speed-up by {count} nodes", value=taken[1] / seconds, unit="x", target=target)


def _seconds(nodes: Nodes, count: int, source: str, sink: str) -> float:
    for number in range(1, count + 1):
        where = ("--address", f"127.0.0.{number}", "--cores", "1", "--memory", "2gb")
        nodes.begin(f"n{number}", options=(*options(15.0), *where))
    for number in range(1, count + 1):
        nodes.await_join(f"n{number}")
    nodes.eventually("all workers", lambda: len(nodes.store.cluster.files()) >= count)
    config = {"Flush": {"Messages": 100, "Frequency": "1s"}}
    nodes.create(
        f"feed{count}",
        source,
        [TABLE],
        sink,
        spark={"master": "nodes"},
        webhook_sink_config=config,
        parallel_requests=1,
        max_step_rows=_STEP_ROWS,
    )
    nodes.eventually("the first step", lambda: _rows(nodes, count) > 0)
    began, first = time.monotonic(), _rows(nodes, count)
    nodes.eventually("the last step", lambda: _rows(nodes, count) >= _ROWS)
    return (time.monotonic() - began) * _ROWS / (_ROWS - first)


def _rows(nodes: Nodes, count: int) -> float:
    progress = nodes.store.progress.load(f"feed{count}")
    return 0.0 if progress is None else progress.counters.get("rows", 0.0)
