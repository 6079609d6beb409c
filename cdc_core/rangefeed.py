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
    """The driver's part: checks the source, before every run and for `cdc check`, and starts a changefeed there."""

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Check that `start` can succeed. Changes nothing. Raises: ConfigError; as `start`.

        May be called while a run is reading. The error names what a person must change, such as a table that does not
        exist. Log at INFO what users should know although nothing is wrong: `cdc check` shows these lines as notes.
        """

    @abstractmethod
    def schemas(self) -> Sequence[TableSchema]:
        """Return the current schema of every watched table, with its primary key in key order.

        Called after `check`. Versions count from 1.
        """

    def explain(self, schema: TableSchema) -> Sequence[tuple[str, Sequence[str]]]:  # noqa: ARG002
        """Return titles, each with lines of text: which changes `restriction` leaves out, and why it keeps all others.

        Called by `cdc explain`, after `check`. By default there is nothing to show.
        """
        return ()

    @abstractmethod
    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        """Return the token that the attempt starts from; on return the source keeps all history after it.

        Called once per attempt, while no task of an earlier attempt is alive. *saved* is the token saved last, or None
        at the first start. Scan tables that *saved* lacks, as the context says. Raises: HistoryLostError if changes
        after *saved* are gone, because continuing would lose them silently.

        Before you create anything on the source, such as a slot or a trigger, pass the intent to *save*, which makes it
        durable. After a crash, the intent is *saved*, so that you can find or remove what was created.

        At the first start, the context may have a `cursor`. All changes after it are read. If the cursor is a
        timestamp, the token may be earlier: the engine leaves out changes that are not later than the cursor. A scan,
        if requested, is as of the cursor if the source can read the past. Raises: ConfigError, with the oldest possible
        cursor, if the source may lack changes after it; `check` refuses a text that is not a cursor.
        """

    def move(self, saved: Token, to: str | Token) -> Move:  # noqa: ARG002
        """Return *saved* moved *to* "now", a timestamp in its text form, a position in the source's form, or a token.

        Called while the changefeed is stopped. Changes nothing: `start` gets the token later. `Move` says what is
        refused. From a token, use only the position, and keep what *saved* knows about the tables; otherwise a change
        of their shape in between would be missed. Consumers do not have the values of changes that were left out, so
        later rows must not say that such values are unchanged. By default, a source cannot be moved. Raises:
        ConfigError.
        """
        raise ConfigError(f"the source of this changefeed cannot be read from another position. {START_OVER}")

    def scan_progress(self, token: Token) -> ScanProgress | None:  # noqa: ARG002
        """Return the progress of a scan, backfill or rescan at *token*, without connecting; None if done or unknown."""
        return None

    def drop(self, saved: Token | None) -> None:  # noqa: B027 (has a default)
        """Remove everything that this changefeed created on the source, because the changefeed ends or starts over.

        May be called twice, after a crash that left only part of it, and on an instance on which nothing else was
        called. When the history starts over, `start` is then called on the same instance without a token; everything
        read from then on is later than what `StepPlanner.now` returned before.
        """

    def created(self) -> Sequence[SourceObjects] | None:
        """Return what all changefeeds have created on the source, or None if this is unknown, which is the default.

        The context may have no tables. `cdc drop` shows the list, and drops an entry with an instance that has the
        entry's `changefeed` and `feed_id`. With None, `cdc drop --orphans` is refused.
        """
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
