"""Checks and starts a changefeed of the simulated database, and releases the history that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cdc_conformance.simulated import scan
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.log_steps import next_boundary
from cdc_conformance.simulated.source import INTENT, SimulatedToken, Source, is_intent, lost_history
from cdc_conformance.simulated.state import table_name
from cdc_core import (
    ConfigError,
    Frontier,
    Move,
    Rangefeed,
    RangefeedContext,
    ScanProgress,
    SourceHistory,
    SourceObjects,
    Span,
    TableSchema,
    Timestamp,
    Token,
)


class SimulatedHistory(SourceHistory):
    """Moves the changefeed's protected timestamp, below which the database may collect garbage."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = Source(context)

    def release(self, token: Token) -> None:
        needed = SimulatedToken.from_token(token).needed
        database = self.source.database
        kept = database.protected().get(self.source.feed)
        if kept is not None and needed > kept:
            database.protect(self.source.feed, needed)

    def metrics(self) -> Mapping[str, float]:
        database = self.source.database
        kept = database.protected().get(self.source.feed)
        return {"retained_s": 0.0 if kept is None else max(0.0, (database.now.wall - kept.wall) / 1e9)}

    def close(self) -> None:
        self.source.close()


class SimulatedRangefeed(Rangefeed):
    """Keeps nothing between calls: everything is in the events of the database's directory."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = Source(context)

    def check(self) -> None:
        database = self.source.database
        if not database.exists:
            raise ConfigError(f"there is no simulated database in {database.directory}; create one first")
        for text in self.context.tables:
            if table_name(text).full not in database.cluster.tables:
                raise ConfigError(f"table {table_name(text)} is not in the simulated database {database.directory}")

        self._cursor()

    def schemas(self) -> Sequence[TableSchema]:
        cluster = self.source.cluster
        return [cluster.tables[name].newest_shape.schema for name in self.source.names]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        source = self.source
        if saved is None or is_intent(saved):
            cursor = self._cursor()
            if cursor is not None and cursor < (oldest := source.cluster.gc_threshold):
                raise ConfigError(
                    f"the simulated database has no history after cursor {cursor}; its history begins at {oldest}"
                )
            save(INTENT)
            at = source.database.begin_reading(source.feed, cursor)
            cluster = source.cluster
            spans = [Span(name) for name in source.names]
            token = SimulatedToken(
                events=cluster.events,
                tables={name: cluster.tables[name].created for name in source.names},
                frontier=Frontier(spans, at),
                scan=scan.begin(cluster, spans, at) if self.context.initial_scan else None,
            )
            return token.to_token()
        token = SimulatedToken.from_token(saved)
        source.require(source.cluster, token)
        kept = source.database.protected().get(source.feed)
        if kept is None or kept > token.needed:  # history before the token is left to `release`
            try:
                source.database.protect(source.feed, token.needed)
            except StatementError as error:
                raise lost_history(error) from error
        return saved

    def move(self, saved: Token, to: str | Token) -> Move:
        """Move forward only, as rows keep their timestamps, and not past a boundary, which would go unnoticed."""
        if is_intent(saved):
            raise ConfigError("nothing has been read yet")
        token = SimulatedToken.from_token(saved)
        if token.scan is not None or token.again is not None:
            raise ConfigError("its tables are being scanned; let the scan end first")
        end, begin = self._resolved(), token.frontier.high_water
        at = end if to == "now" else _position(to)
        if at > end:
            raise ConfigError(f"{at} is in the future: the simulated database is complete up to {end}")
        if at < begin:
            raise ConfigError(
                f"{at} is before {begin}, and earlier rows would have timestamps that are already resolved"
            )
        boundary = next_boundary(self.source.cluster, token.frontier)
        if boundary is not None and at >= boundary.at:
            tables = ", ".join(change.table for change in boundary.changes)
            raise ConfigError(f"{at} is not before {boundary.at}, when the shape of {tables} changes")
        frontier = Frontier.from_json(token.frontier.to_json())
        for name in token.tables:
            frontier.forward(Span(name), at)
        moved = replace(token, frontier=frontier).to_token()
        return Move(token=moved, before=str(begin), after=str(at), forward=at > begin, back=False)

    def scan_progress(self, token: Token) -> ScanProgress | None:
        left = None if is_intent(token) else SimulatedToken.from_token(token).scan
        return None if left is None else ScanProgress(done=left.done, total=left.total, unit="rows")

    def drop(self, saved: Token | None) -> None:  # noqa: ARG002
        self.source.database.unprotect(self.source.feed)

    def created(self) -> Sequence[SourceObjects]:
        self.source.require_reachable()
        return [
            SourceObjects(name=feed, changefeed="", feed_id=feed, kinds=(f"protected timestamp {at}",))
            for feed, at in self.source.database.protected().items()
        ]

    def _cursor(self) -> Timestamp | None:
        """Return where the user wants to begin, None for now. Raises: ConfigError."""
        cursor = self.context.cursor
        try:
            return None if cursor is None else Timestamp.parse(cursor)
        except ValueError:
            raise ConfigError(f"cursor '{cursor}' is not a timestamp, which the simulated database needs") from None

    def _resolved(self) -> Timestamp:
        """Return up to when all commits are known. Raises: ConfigError when an open transaction holds that back."""
        try:
            if self.context.options.time_passes:
                self.source.database.settle()
        except StatementError as error:
            raise ConfigError(str(error)) from error
        return min(self.source.cluster.resolved(name).high_water for name in self.source.names)

    def close(self) -> None:
        if self.context.temporary:
            self.source.database.unprotect(self.source.feed)
        self.source.close()


def _position(to: str | Token) -> Timestamp:
    try:
        return SimulatedToken.from_token(to).frontier.high_water if isinstance(to, dict) else Timestamp.parse(to)
    except (LookupError, TypeError, ValueError):
        raise ConfigError(f"'{to}' is neither 'now', nor a time, nor a token of the simulated database") from None
