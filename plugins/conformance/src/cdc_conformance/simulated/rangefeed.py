"""The simulated database as a source of row changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from cdc_conformance.simulated import planning, scan
from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.database import SimulatedDatabase
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_conformance.simulated.planning import Piece
from cdc_conformance.simulated.position import STARTING, Position, Scan, is_intent
from cdc_conformance.simulated.reading import Wanted, changed_rows, scanned_rows
from cdc_conformance.simulated.state import table_name
from cdc_core import (
    ConfigError,
    Frontier,
    HistoryLostError,
    Mark,
    Rangefeed,
    RangefeedContext,
    RetryableRangefeedError,
    RowBatch,
    ScanProgress,
    Slice,
    Span,
    StepLimit,
    TableSchema,
    TerminalRangefeedError,
    Timestamp,
    Token,
)
from cdc_core.masking import masked_uri

__all__ = ["LogSlice", "ScanSlice", "SimulatedRangefeed", "directory_of"]

_FRUITLESS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Changes of spans that one node serves."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSlice:
    """A chunk of the initial scan."""

    span: Span
    at: Timestamp


def directory_of(uri: str) -> Path:
    """Return where the database of this URI lives. Raises: ConfigError."""
    parts = urlsplit(uri)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(f"'{masked_uri(uri)}' names no simulated database; write simulated:///path/of/its/directory")
    return Path(unquote(parts.path))


class SimulatedRangefeed(Rangefeed):
    """Reads the events that the database's directory holds; nothing is kept between calls but what they say."""

    repeats_steps: ClassVar[bool] = True

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._options: SimulatedOptions = context.options
        self._opened: SimulatedDatabase | None = None
        self._not_before = 0.0
        self._fruitless = 0

    def check(self) -> None:
        database = self._database
        if not database.exists:
            raise ConfigError(f"there is no simulated database in {database.directory}; create one first")
        for text in self.context.tables:
            if table_name(text).full not in database.cluster.tables:
                raise ConfigError(f"table {table_name(text)} is not in the simulated database {database.directory}")

    def schemas(self) -> Sequence[TableSchema]:
        cluster = self._cluster
        return [cluster.tables[name].newest_shape.schema for name in self._names]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        if saved is None or is_intent(saved):
            save(STARTING)
            at = self._database.begin_reading(self._feed)
            cluster = self._cluster
            spans = [Span(name) for name in self._names]
            position = Position(
                events=cluster.events,
                tables={name: cluster.tables[name].created for name in self._names},
                frontier=Frontier(spans, at),
                scan=scan.begin(cluster, spans, at) if self.context.initial_scan else None,
            )
            return position.to_token()
        position = Position.from_token(saved)
        self._require(self._cluster, position)
        kept = self._database.protected().get(self._feed)
        if kept is None or kept > position.needed:  # what a later token has no need of is let go by `release` only
            try:
                self._database.protect(self._feed, position.needed)
            except StatementError as error:
                raise HistoryLostError(_lost(error)) from error
        return saved

    def now(self) -> Timestamp:
        cluster = self._cluster
        # An idle database closes timestamps above all that has happened in it; marks must not be ahead of its clock.
        closed = [cluster.resolved(name).latest for name in self._names if name in cluster.tables]
        return max([cluster.high, *closed])

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:  # noqa: ARG002
        position = Position.from_token(start)
        cluster = self._cluster
        self._require(cluster, position)
        if position.scan is not None:
            left = scan.taken(
                cluster,
                position.scan,
                rows=limit.rows,
                parts=self.context.parallelism,
                chunk_rows=self._options.scan_chunk_rows,
            )
            return replace(position, events=cluster.events, scan=left).to_token()
        frontier = planning.advanced(cluster, position.frontier, limit)
        if frontier == position.frontier and self._let_time_pass(cluster, frontier):
            cluster = self._cluster
            frontier = planning.advanced(cluster, position.frontier, limit)
        if frontier == position.frontier:
            return start
        self._fruitless = 0
        return replace(position, events=cluster.events, frontier=frontier).to_token()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:  # noqa: ARG002
        first, last = Position.from_token(start), Position.from_token(end)
        cluster = self._cluster
        if first.scan is not None:
            return self._scan_slices(cluster, first.scan, last.scan)
        groups = planning.grouped(planning.pieces(cluster, first.frontier, last.frontier))
        return [Slice(lower=group[0].after.next(), payload=LogSlice(pieces=tuple(group))) for group in groups]

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        if any(Position.from_token(token).scan is not None for token in (start, end)):
            return None
        return self.slices(start, end, after=after)

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        wanted = Wanted(diff=self.context.diff, mvcc=self.context.mvcc, batch_rows=self._options.batch_rows)
        cluster = self._cluster
        payload: LogSlice | ScanSlice = slice_.payload
        if isinstance(payload, ScanSlice):
            self._require_history(cluster, payload.at)
            yield from scanned_rows(cluster, payload.span, payload.at, wanted)
            yield Mark(span=payload.span, timestamp=payload.at, resolved=True)
            return
        for piece in payload.pieces:
            self._require_history(cluster, piece.after)
            yield from changed_rows(cluster, piece, wanted)
            yield Mark(span=piece.span, timestamp=piece.upto, resolved=True)

    def release(self, token: Token) -> None:
        needed = Position.from_token(token).needed
        kept = self._database.protected().get(self._feed)
        if kept is not None and needed > kept:
            self._database.protect(self._feed, needed)

    def scan_progress(self, token: Token) -> ScanProgress | None:
        left = None if is_intent(token) else Position.from_token(token).scan
        return None if left is None else ScanProgress(done=left.done, total=left.total, unit="rows")

    def metrics(self) -> Mapping[str, float]:
        database = self._database
        kept = database.protected().get(self._feed)
        return {"retained_s": 0.0 if kept is None else max(0.0, (database.now.wall - kept.wall) / 1e9)}

    def drop(self, saved: Token | None) -> None:  # noqa: ARG002
        self._database.unprotect(self._feed)

    def close(self) -> None:
        self._opened = None

    @property
    def _database(self) -> SimulatedDatabase:
        if self._opened is None:
            self._opened = SimulatedDatabase(directory_of(self.context.uri))
        return self._opened

    @property
    def _cluster(self) -> Cluster:
        """The cluster as it is now. Raises: RetryableRangefeedError while the database is out of reach."""
        if not self._database.exists:
            raise RetryableRangefeedError(f"the simulated database {self._database.directory} is out of reach")
        return self._database.cluster

    @property
    def _feed(self) -> str:
        return self.context.feed_id or self.context.changefeed

    @property
    def _names(self) -> list[str]:
        return [table_name(text).full for text in self.context.tables]

    def _require(self, cluster: Cluster, position: Position) -> None:
        """Raise what must stop the changefeed at *position*."""
        if cluster.events < position.events:
            raise HistoryLostError(
                f"the simulated database {self._database.directory} has {cluster.events} events, fewer than the"
                f" {position.events} that were read: it is another one; start a changefeed under another name"
            )
        for name, created in position.tables.items():
            table = cluster.tables.get(name)
            if table is None or table.created != created:
                raise TerminalRangefeedError(
                    f"table {name} was dropped: start a changefeed under another name, with an initial scan, or remove"
                    " the table from the list of another"
                )
        self._require_history(cluster, position.needed)

    def _require_history(self, cluster: Cluster, timestamp: Timestamp) -> None:
        if timestamp < cluster.gc_threshold:
            raise HistoryLostError(
                _lost(f"what was not read begins at {timestamp}, and {cluster.gc_threshold} is kept")
            )

    def _let_time_pass(self, cluster: Cluster, frontier: Frontier) -> bool:
        """Tick when that is due: at once while it could resolve what has happened, else now and then."""
        if not self._options.time_passes:
            return False
        behind = any(frontier.of(Span(name)) < cluster.high for name in self._names)
        held = any(row[0] in self._names for txn in cluster.transactions.values() for row in txn.intents)
        if (not behind or held or self._fruitless >= _FRUITLESS) and time.monotonic() < self._not_before:
            return False
        self._not_before = time.monotonic() + self._options.idle_interval
        self._fruitless += 1
        self._database.tick()
        return True

    def _scan_slices(self, cluster: Cluster, first: Scan, last: Scan | None) -> list[Slice]:
        spans = scan.without(first.left, last.left if last is not None else ())
        chunks = scan.chunks(cluster, spans, first.at, rows=self._options.scan_chunk_rows)
        return [Slice(lower=first.at, payload=ScanSlice(span=span, at=first.at)) for span, _ in chunks]


def _lost(reason: object) -> str:
    return f"the simulated database collected garbage: {reason}; start a changefeed under another name"
