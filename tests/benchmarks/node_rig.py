"""Nodes for benchmarks: a store of their own, and jobs of small tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.context import Bench
from cdc_testing.nodes import Nodes


def options(lease_s: float, *, max_jobs: int = 20) -> tuple[str, ...]:
    """Return the options of a node with this lease; the others follow from it as by default."""
    return ("--lease", f"{lease_s:g}s", "--heartbeat", f"{lease_s / 3:g}s", "--max-jobs", str(max_jobs))


@contextmanager
def nodes_of(bench: Bench, name: str) -> Iterator[Nodes]:
    """Yield nodes whose store is a new database, the one that `pg_stat_database` calls *name*."""
    with bench.scratch(name) as scratch, bench.database(name) as store, Nodes(scratch, store) as nodes:
        yield nodes
