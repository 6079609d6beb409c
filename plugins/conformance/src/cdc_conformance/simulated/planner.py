"""Plans the steps of a changefeed of the simulated database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from cdc_conformance.simulated import log_steps, scan
from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.log_steps import reached_boundary
from cdc_conformance.simulated.placing import placed
from cdc_conformance.simulated.scan import parse
from cdc_conformance.simulated.source import Again, LogSlice, Scan, ScanSlice, SimulatedOptions, SimulatedToken, Source
from cdc_core import (
    ConfigError,
    Frontier,
    RangefeedContext,
    Rescan,
    Slice,
    Span,
    StepLimit,
    StepPlanner,
    Timestamp,
    Token,
    did_you_mean,
)

_FRUITLESS = 20
"""After so many ticks that resolved nothing, the planner ticks at its idle interval only."""


class SimulatedPlanner(StepPlanner):
    """Lets the database's time pass while nothing new is resolved, unless the option `time_passes` is off."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = Source(context)
        self._options: SimulatedOptions = context.options
        self._not_before = 0.0
        self._fruitless = 0

    def now(self) -> Timestamp:
        cluster = self.source.cluster
        # An idle database closes timestamps above the last event; marks must not be ahead of the clock.
        closed = [cluster.resolved(name).latest for name in self.source.names if name in cluster.tables]
        return max([cluster.high, *closed])

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:  # noqa: ARG002
        token = SimulatedToken.from_token(start)
        cluster = self.source.cluster
        self.source.require(cluster, token)
        token = self._behind_the_boundary(cluster, token)
        if token.scan is not None:
            left = scan.taken(
                cluster,
                token.scan,
                rows=limit.rows,
                parts=self.context.parallelism,
                chunk_rows=self._options.scan_chunk_rows,
            )
            return replace(token, events=cluster.events, scan=left).to_token()
        before = None if token.again is None else token.again.at
        frontier = log_steps.advanced(cluster, token.frontier, limit, before=before)
        if frontier == token.frontier and self._let_time_pass(cluster, frontier):
            cluster = self.source.cluster
            frontier = log_steps.advanced(cluster, token.frontier, limit, before=before)
        if frontier == token.frontier:
            return start
        self._fruitless = 0
        return replace(token, events=cluster.events, frontier=frontier).to_token()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:  # noqa: ARG002
        first, last = SimulatedToken.from_token(start), SimulatedToken.from_token(end)
        cluster = self.source.cluster
        begun = self._behind_the_boundary(cluster, first)
        resolved = begun.again is None
        if begun.scan is not None:
            return self._scan_slices(cluster, begun.scan, last.scan, resolved=resolved)
        placement = self.context.placement
        found = log_steps.pieces(cluster, first.frontier, last.frontier, placement, seed=last.events)
        return [
            Slice(
                lower=group[0].after.next(),
                payload=LogSlice(pieces=tuple(group), resolved=resolved),
                locality=cluster.nodes[group[0].node].locality,
            )
            for group in log_steps.grouped(found)
        ]

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        slices = self.slices(start, end, after=after)
        return None if any(isinstance(slice_.payload, ScanSlice) for slice_ in slices) else slices

    def check_rescan(self, rescan: Rescan) -> None:
        names = self.source.names
        if rescan.table is None:
            return
        if rescan.table not in names:
            raise ConfigError(f"table {rescan.table} is not watched{did_you_mean(rescan.table, names)}")
        if rescan.where is not None:
            column, _ = parse(rescan.where)
            known = self.source.cluster.tables[rescan.table].newest_shape.schema.columns
            if column not in [each.name for each in known]:
                raise ConfigError(f"table {rescan.table} has no column '{column}'")

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        token = SimulatedToken.from_token(start)
        if token.scan is not None or token.again is not None:
            return None
        tables: dict[str, list[str] | None] = {}
        for rescan in rescans:
            for name in [rescan.table] if rescan.table is not None else self.source.names:
                known = tables.get(name, [])
                tables[name] = None if known is None or rescan.where is None else [*known, rescan.where]
        tables = {name: where for name, where in tables.items() if name in token.tables}
        if not tables:
            return start
        at = max(self.source.cluster.high, token.frontier.latest).next()
        self.source.database.execute("read", timestamp=str(at))
        return replace(token, again=Again(at=at, tables=tables)).to_token()

    def close(self) -> None:
        self.source.close()

    def _behind_the_boundary(self, cluster: Cluster, token: SimulatedToken) -> SimulatedToken:
        """Return *token* behind the schema boundary that it is at, if it is at one, with the backfill still to be done.

        The same for the same token, whenever it is called: nothing below a boundary changes anymore. A span mark of
        the backfill is the first that passes the boundary. Raises: TerminalRangefeedError when the policy is to stop.
        """
        boundary = None if token.scan is not None else reached_boundary(cluster, token.frontier)
        if boundary is None:
            return token if token.scan is not None else _rescanning(cluster, token)
        rules, resolved = self.context.schema_changes, token.frontier.high_water
        again = [Span(name) for name in rules.tables_to_read_again(boundary.changes, resolved=resolved)]
        passed = replace(token, frontier=boundary.passed(token.frontier))
        if not again:
            return _rescanning(cluster, passed)
        return replace(passed, scan=scan.begin(cluster, again, boundary.at))

    def _let_time_pass(self, cluster: Cluster, frontier: Frontier) -> bool:
        """Tick if a tick is due, and return whether it was: at once while a tick can resolve something, else rarely."""
        if not self._options.time_passes:
            return False
        names = self.source.names
        behind = any(frontier.of(Span(name)) < cluster.high for name in names)
        held = any(row[0] in names for txn in cluster.transactions.values() for row in txn.intents)
        if (not behind or held or self._fruitless >= _FRUITLESS) and time.monotonic() < self._not_before:
            return False
        self._not_before = time.monotonic() + self._options.idle_interval
        self._fruitless += 1
        self.source.database.tick()
        return True

    def _scan_slices(self, cluster: Cluster, first: Scan, last: Scan | None, *, resolved: bool) -> list[Slice]:
        spans = scan.without(first.left, last.left if last is not None else ())
        chunks = list(scan.chunks(cluster, spans, first.at, rows=self._options.scan_chunk_rows))

        def payload(span: Span) -> ScanSlice:
            where = None if first.where is None else tuple(first.where.get(span.table, ()))
            return ScanSlice(span=span, at=first.at, where=where, resolved=resolved)

        chosen = placed(cluster, [span for span, _ in chunks], self.context.placement, seed=cluster.events)
        return [
            Slice(lower=first.at, payload=payload(span), locality=cluster.nodes[chosen[span]].locality)
            for span, _ in chunks
        ]


def _rescanning(cluster: Cluster, token: SimulatedToken) -> SimulatedToken:
    """Return *token* with the scan that a rescan asks for, if everything before it was read."""
    again = token.again
    if again is None or token.frontier.high_water < again.at.prev():
        return token
    frontier = Frontier.from_json(token.frontier.to_json())
    for name in again.tables:
        frontier.forward(Span(name), again.at)
    where = {name: predicates for name, predicates in again.tables.items() if predicates is not None}
    rescan = scan.begin(cluster, [Span(name) for name in again.tables], again.at, where=where)
    return replace(token, frontier=frontier, scan=rescan, again=None)
