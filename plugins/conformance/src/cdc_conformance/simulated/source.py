"""The simulated database as every part of its rangefeed sees it: its options, tokens and slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.database import SimulatedDatabase, of_this_process
from cdc_conformance.simulated.state import table_name
from cdc_core import (
    START_OVER,
    ConfigError,
    Duration,
    Frontier,
    HistoryLostError,
    RangefeedContext,
    RetryableRangefeedError,
    Span,
    TerminalRangefeedError,
    Timestamp,
    Token,
    masked_uri,
    option,
)

INTENT: Token = {"state": "starting"}
"""Saved before the database keeps history for the changefeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The share of one span in a step: its rows later than `after`, up to `upto`. It is read at `node`."""

    span: Span
    after: Timestamp
    upto: Timestamp
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Changes of spans that are read at one node. Their marks are not resolved while a rescan waits."""

    pieces: tuple[Piece, ...]
    resolved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSlice:
    """A chunk of a scan. Of a rescan, `where` has predicates, one of which a row must satisfy if there are any."""

    span: Span
    at: Timestamp
    where: tuple[str, ...] | None = None
    resolved: bool = True


def is_intent(token: Token) -> bool:
    """Return whether *token* says only that the changefeed was about to start."""
    return token == INTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The rest of a scan as of `at`: the spans that are `left`, and how many of `total` rows are `done`.

    Of a rescan, `where` has the tables of which only the rows that one of the predicates selects are read.
    """

    at: Timestamp
    left: tuple[Span, ...]
    done: int
    total: int
    where: Mapping[str, Sequence[str]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the scan as JSON values, for `from_json`."""
        left = [span.to_json() for span in self.left]
        where = {} if self.where is None else {"where": dict(self.where)}
        return {"at": str(self.at), "left": left, "done": self.done, "total": self.total, **where}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            at=Timestamp.parse(value["at"]),
            left=tuple(Span.from_json(span) for span in value["left"]),
            done=value["done"],
            total=value["total"],
            where=value.get("where"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A rescan as of `at`, before which everything else is read: tables, each with predicates; None for all rows."""

    at: Timestamp
    tables: Mapping[str, Sequence[str] | None]

    def to_json(self) -> dict[str, Any]:
        """Return the rescan as JSON values, for `from_json`."""
        return {"at": str(self.at), "tables": dict(self.tables)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(at=Timestamp.parse(value["at"]), tables=value["tables"])


@dataclass(frozen=True, kw_only=True)
class SimulatedToken:
    """A token, parsed. The `scan`, if any is left, comes before everything else.

    `events` is the number of events seen, `tables` maps the full name of each watched table to the time when it was
    created, and `frontier` holds how far each span was read.
    """

    events: int
    tables: Mapping[str, Timestamp]
    frontier: Frontier
    scan: Scan | None = None
    again: Again | None = None

    @property
    def needed(self) -> Timestamp:
        """The time from which on history is needed."""
        return self.frontier.high_water

    def to_token(self) -> Token:
        return {
            "events": self.events,
            "tables": {name: str(created) for name, created in self.tables.items()},
            "frontier": self.frontier.to_json(),
            "scan": None if self.scan is None else self.scan.to_json(),
            **({} if self.again is None else {"again": self.again.to_json()}),
        }

    @classmethod
    def from_token(cls, token: Token) -> Self:
        return cls(
            events=token["events"],
            tables={name: Timestamp.parse(created) for name, created in token["tables"].items()},
            frontier=Frontier.from_json(token["frontier"]),
            scan=None if token["scan"] is None else Scan.from_json(token["scan"]),
            again=Again.from_json(token["again"]) if "again" in token else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """Options of the rangefeed. The source URI names the directory of the database."""

    scan_chunk_rows: int = option(100, doc="Maximum number of rows that one task of the initial scan reads.")
    batch_rows: int = option(1000, doc="Maximum number of rows in a batch.")
    time_passes: bool = option(
        True,
        doc="Advance the cluster's clock while the changefeed waits, so that timestamps are closed. If false, only"
        " `tick` advances the clock.",
    )
    idle_interval: Duration = option(
        Duration(0.2), doc="How often the clock of an idle database advances; 0 means whenever the changefeed polls."
    )

    def __post_init__(self) -> None:
        for name in ("scan_chunk_rows", "batch_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")


def directory_of(uri: str) -> Path:
    """Return the directory of the database that *uri* names. Raises: ConfigError."""
    parts = urlsplit(uri)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(
            f"'{masked_uri(uri)}' does not name a simulated database; write simulated:///path/to/its/directory"
        )
    return Path(unquote(parts.path))


def lost_history(reason: object) -> HistoryLostError:
    """Return the error for history that the database no longer has."""
    return HistoryLostError(f"the simulated database collected garbage: {reason}. {START_OVER}")


class Source:
    """Opens the database on first use. Each part of a rangefeed has its own."""

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context
        self._database: SimulatedDatabase | None = None

    @property
    def database(self) -> SimulatedDatabase:
        if self._database is None:
            self._database = self.open()
        return self._database

    @property
    def cluster(self) -> Cluster:
        """The current state of the cluster. Raises: RetryableRangefeedError while the database is unreachable."""
        self.require_reachable()
        return self.database.cluster

    @property
    def feed(self) -> str:
        """The name under which the database keeps history for this changefeed."""
        name = self.context.feed_id or self.context.changefeed
        return of_this_process(name) if self.context.temporary else name

    @property
    def names(self) -> list[str]:
        """The full names of the watched tables."""
        return [table_name(text).full for text in self.context.tables]

    def open(self) -> SimulatedDatabase:
        return SimulatedDatabase(directory_of(self.context.uri))

    def close(self) -> None:
        self._database = None

    def require_reachable(self) -> None:
        """Return if the database is there. Raises: RetryableRangefeedError."""
        if not self.database.exists:
            raise RetryableRangefeedError(f"the simulated database {self.database.directory} is unreachable")

    def require(self, cluster: Cluster, token: SimulatedToken) -> None:
        """Return when the changefeed can continue at *token*.

        Raises: HistoryLostError for another database or for collected history; TerminalRangefeedError for a dropped
        table.
        """
        if cluster.events < token.events:
            raise HistoryLostError(
                f"the simulated database {self.database.directory} has {cluster.events} events, but {token.events} were"
                f" read before: it is another database. {START_OVER}"
            )
        for name, created in token.tables.items():
            table = cluster.tables.get(name)
            if table is None or table.created != created:
                raise TerminalRangefeedError(f"table {name} was dropped. {START_OVER}")
        self.require_history(cluster, token.needed)

    def require_history(self, cluster: Cluster, timestamp: Timestamp) -> None:
        """Return when the history from *timestamp* on is kept. Raises: HistoryLostError."""
        if timestamp < cluster.gc_threshold:
            raise lost_history(
                f"the changefeed needs history from {timestamp} on, but the database retains history only from"
                f" {cluster.gc_threshold} on"
            )
