"""The source side: a rangefeed yields the changes of tables, and how far they are complete.

It has four parts, because four processes of a changefeed use it and share nothing but picklable values:

    Rangefeed       the driver                    may this run, and where does it start?
    StepPlanner     the planner                   where does the next step end, and what are its slices?
    SliceReader     a task on an executor         the rows of one slice
    SourceHistory   the coordinator               what may the source forget?

Each is built from the same `RangefeedContext` in the process that needs it. Constructors store values and do nothing
else: connect when a method needs it first. One instance serves one process, and its methods are never called at the
same time. Instances of different sources of a changefeed are called from different threads. Raises, everywhere:
RetryableRangefeedError (the step runs again later), TerminalRangefeedError and HistoryLostError (the changefeed stops),
ConfigError (before the start only).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from cdc_core.errors import START_OVER, ConfigError
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Move, ScanProgress, SourceObjects, Token
from cdc_core.schema import TableSchema


class Rangefeed(ABC):
    """Checks, before every run and for `cdc check`, and starts a changefeed at its source. Driver."""

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Return when `start` can succeed, also while a run reads. Changes nothing. Raises: ConfigError; as `start`.

        The error names what a person must change, such as a table that does not exist. Log at INFO what users should
        know although nothing is wrong: `cdc check` shows it as notes.
        """

    @abstractmethod
    def schemas(self) -> Sequence[TableSchema]:
        """Return the present schema of every watched table, with its primary key in the order of the key.

        After `check`. Versions count from 1.
        """

    def explain(self, schema: TableSchema) -> Sequence[tuple[str, Sequence[str]]]:  # noqa: ARG002
        """Return which changes `restriction` leaves out, and why not more: titles, each with lines of text.

        For `cdc explain`, after `check`. By default there is nothing to show.
        """
        return ()

    @abstractmethod
    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        """Return the token that the attempt starts from; on return the source keeps all history after it.

        Once an attempt, while no task of an earlier one is alive. *saved* is the token saved last, None at first. Scan
        tables that *saved* lacks, as the context says. Raises: HistoryLostError if changes after *saved* are gone: to
        continue would lose them silently.

        Before you create anything on the source, such as a slot or a trigger, pass the intent to *save*. It is durable
        on return. After a crash it is *saved*, so that you can find or remove what was created.

        At first the context may have a `cursor`. All changes after it are read; the engine leaves out those that are
        not later than a timestamp, so the token may be an earlier one. A scan, if wanted, is as of the cursor where the
        source can read the past. Raises: ConfigError, with the oldest possible cursor, if the source may lack changes
        after it; `check` refuses a text that is not a cursor.
        """

    def move(self, saved: Token, to: str | Token) -> Move:  # noqa: ARG002
        """Return *saved* moved *to* "now", the text form of a timestamp, a position of the source's own, or a token's.

        While the changefeed is stopped. Changes nothing: `start` gets the token later. See `Move` for what is refused.
        Of a token, use the position only, and keep what *saved* knows of the tables: a change of their shape in between
        would be missed. Consumers do not know the values of changes that were left out, so later rows must not say that
        such values still hold. By default no source can be moved. Raises: ConfigError.
        """
        raise ConfigError(f"the source of this changefeed cannot be read from another position. {START_OVER}")

    def scan_progress(self, token: Token) -> ScanProgress | None:  # noqa: ARG002
        """Return how far a scan, backfill or rescan is at *token*, without connecting; None when done or unknown."""
        return None

    def drop(self, saved: Token | None) -> None:  # noqa: B027 (has a default)
        """Remove all that this changefeed created on the source: it ends, or starts over.

        May be called twice, after a crash that left only a part, and on an instance that has seen no other call. When
        the history starts over, `start` without a token follows on the same instance; everything read from then on is
        above what `StepPlanner.now` returned before.
        """

    def created(self) -> Sequence[SourceObjects] | None:
        """Return what all changefeeds have created on the source (tables may be empty); None: unknown, the default.

        `cdc drop` shows the list, and drops an entry by an instance with its `changefeed` and `feed_id`. With None,
        `cdc drop --orphans` is refused.
        """
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
