"""From the SIGKILL of a node to the first step that another one has saved for its job."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.node_rig import nodes_of, options
from benchmarks.report import Figure
from benchmarks.workload import TABLE, create_table
from cdc_testing.nodes import Nodes

_LEASES = (3.0, 15.0)
_JOIN_S = 12.0
"""A node joins within this time, so that during a longer lease it takes nothing from the takeover that follows."""
_ROWS = 1000


def run(bench: Bench) -> Iterator[Figure]:
    """Measure with two nodes, whose Spark is warm once they have joined: one is killed, and a new one takes its place.

    The new one has another name: one of the same name would end the session of the killed one as soon as it joins.
    """
    kills = bench.sizes.kills
    for lease_s in _LEASES:
        name = f"bench_takeover_{lease_s:g}"
        with bench.database(f"{name}_source") as source, nodes_of(bench, name) as nodes:
            create_table(source, _ROWS)
            claimed, delivered = _taken(nodes, source, str(bench.directory / name / "out"), lease_s, kills)
        for what, seconds in {"another node has the job": claimed, "it has saved a step": delivered}.items():
            yield Figure(
                name=f"SIGKILL of a node until {what}, lease {lease_s:g} s, median of {kills}",
                value=statistics.median(seconds),
                unit="s",
                details={"worst": max(seconds), "all": seconds},
            )


def _taken(nodes: Nodes, source: str, out: str, lease_s: float, kills: int) -> tuple[list[float], list[float]]:
    """Return from each kill how long until the job was claimed, and until its high-water mark moved after that."""
    claimed, delivered = [], []
    for number in range(2):
        nodes.start(f"n{number}", options=options(lease_s))
    nodes.create("feed", source, [TABLE], f"file://{out}")
    for number in range(kills):
        name = f"n{number + 2}"
        victim = nodes.until_delivering("feed")
        began = time.monotonic()
        victim.kill()
        if lease_s > _JOIN_S:
            nodes.begin(name, options=options(lease_s))
        nodes.eventually("a claim", lambda victim=victim: nodes.job("feed").node not in (None, victim.name))
        claimed.append(time.monotonic() - began)
        mark = nodes.high_water("feed")
        nodes.eventually("a step", lambda mark=mark: nodes.high_water("feed") > mark)
        delivered.append(time.monotonic() - began)
        if lease_s <= _JOIN_S:
            nodes.begin(name, options=options(lease_s))
        nodes.await_join(name)
    return claimed, delivered
