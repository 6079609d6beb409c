"""The simulated database as every part of its rangefeed sees it, and the options of its changefeeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.database import SimulatedDatabase, of_this_process
from cdc_conformance.simulated.state import table_name
from cdc_conformance.simulated.tokens import SimulatedToken
from cdc_core import (
    START_OVER,
    ConfigError,
    Duration,
    HistoryLostError,
    RangefeedContext,
    RetryableRangefeedError,
    TerminalRangefeedError,
    Timestamp,
    masked_uri,
    option,
)

__all__ = ["SimulatedOptions", "Source", "directory_of", "lost_history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """Options of the rangefeed. The source URI names the directory of the database."""

    scan_chunk_rows: int = option(100, doc="Maximum number of rows that one task of the initial scan reads.")
    batch_rows: int = option(1000, doc="Maximum number of rows in a batch.")
    time_passes: bool = option(
        True,
        doc="Let the cluster's time pass while the changefeed waits, to close timestamps. If off, time passes only by "
        "`tick`.",
    )
    idle_interval: Duration = option(
        Duration(0.2), doc="How often time passes in an idle database; 0 means each time the changefeed looks."
    )

    def __post_init__(self) -> None:
        for name in ("scan_chunk_rows", "batch_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")


def directory_of(uri: str) -> Path:
    """Return the directory of the database that *uri* names. Raises: ConfigError."""
    parts = urlsplit(uri)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(f"'{masked_uri(uri)}' names no simulated database; write simulated:///path/of/its/directory")
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
        """The present state of the cluster. Raises: RetryableRangefeedError while the database is out of reach."""
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
            raise RetryableRangefeedError(f"the simulated database {self.database.directory} is out of reach")

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
                f"the changefeed needs history from {timestamp} on, but the database keeps it from"
                f" {cluster.gc_threshold} on"
            )
