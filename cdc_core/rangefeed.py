"""The source side: a rangefeed yields the changes of tables, and how far they are complete.

It has four parts, because four processes of a changefeed use it and share nothing but picklable values:

    Rangefeed       the driver                    may this run, and where does it start?
    StepPlanner     the planner                   where does the next step end, and what are its slices?
    SliceReader     a task on an executor         the rows of one slice
    SourceHistory   the coordinator               what may the source forget?

Each is built from the same `RangefeedContext` in the process that needs it. Constructors connect to nothing and have no
side effects. One instance serves one process, and its methods are never called at the same time. Raises, everywhere:
RetryableRangefeedError (the step runs again later), TerminalRangefeedError and HistoryLostError (the changefeed stops),
ConfigError (before the start only).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.errors import START_OVER, ConfigError
from cdc_core.locality import Locality
from cdc_core.placement import PlacementRules
from cdc_core.rangefeed_values import Move, ScanProgress, SourceObjects, Token
from cdc_core.restriction import Restriction, unrestricted
from cdc_core.schema import TableSchema
from cdc_core.schema_change import SchemaChangeRules

__all__ = ["Rangefeed", "RangefeedContext", "Token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangefeedContext:
    """What every part of a rangefeed is built from. Picklable."""

    changefeed: str
    feed_id: str
    """Random identity of the changefeed, chosen once and saved, 12 hexadecimal digits. Name by it what you create."""
    uri: str = field(repr=False)
    """URI of the source, secrets included."""
    tables: tuple[str, ...]
    """Tables to watch, as the user wrote them."""
    options: Any
    """An instance of the registered options class."""
    diff: bool = False
    mvcc: bool = False
    """Whether `before` and `mvcc` are wanted."""
    initial_scan: bool = True
    initial_scans: Mapping[str, bool] = field(default_factory=dict)
    """Whether the rows that tables hold at the start are wanted; where it differs for tables that join, by table."""
    saved: Token | None = None
    """The token saved last before this run; None before it begins. For `check`, `check_rescan` and `move`,
    and for a `SourceHistory` that only measures."""
    cursor: str | None = None
    """Where the changefeed starts instead of now: the text form of a timestamp, or a position of the source's own."""
    schema_changes: SchemaChangeRules = field(default_factory=SchemaChangeRules)
    """What the planner does at a schema boundary."""
    placement: PlacementRules = field(default_factory=PlacementRules)
    """Which nodes of the source read what, for a registration with `replicas`."""
    parallelism: int = 1
    """How many slices can be read at the same time."""
    locality: Locality = field(default_factory=Locality)
    """Where the changefeed is coordinated; without tiers where that is unknown."""
    restriction: Callable[[TableSchema], Restriction] = unrestricted
    """What is used of the rows of a version of a table."""
    temporary: bool = False
    """Whether all parts live in one process, and nothing that `start` creates outlives it or `Rangefeed.close`."""


class Rangefeed(ABC):
    """Checks, before every run and for `cdc check`, and starts a changefeed at its source. Driver."""

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Return when `start` can succeed, also while a run reads. Changes nothing. Raises: ConfigError; as `start`."""

    @abstractmethod
    def schemas(self) -> Sequence[TableSchema]:
        """Return the present schema of every watched table. After `check`."""

    def explain(self, schema: TableSchema) -> Sequence[tuple[str, Sequence[str]]]:  # noqa: ARG002
        """Return which changes `restriction` leaves out, and why not more: titles with lines; none. After `check`."""
        return ()

    @abstractmethod
    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        """Return the token that the attempt starts from; on return the source keeps all history after it.

        Once an attempt, while no task of an earlier one is alive. *saved* is the token saved last, None at first.
        Before anything is created, pass the intent to *save*: it is durable, and *saved* after a crash. Scan tables
        that *saved* lacks, as the context says. Raises: HistoryLostError, at first ConfigError, if history is gone.
        """

    def move(self, saved: Token, to: str | Token) -> Move:  # noqa: ARG002
        """Return *saved* moved *to* "now", the text form of a timestamp, a position of the source's own, or a token's.

        While the changefeed is stopped. Changes nothing. See `Move`. By default no source can. Raises: ConfigError.
        """
        raise ConfigError(f"the source of this changefeed cannot be read from another position. {START_OVER}")

    def scan_progress(self, token: Token) -> ScanProgress | None:  # noqa: ARG002
        """Return how far a scan is at *token*, without connecting; None when it is done or, by default, unknown."""
        return None

    def drop(self, saved: Token | None) -> None:  # noqa: B027 (has a default)
        """Remove all that this changefeed created: it ends, or begins anew. Repeatable; perhaps before `start`."""

    def created(self) -> Sequence[SourceObjects] | None:
        """Return what all changefeeds have created on the source (tables may be empty); None: unknown, the default."""
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
