"""What the parts of a sink are built from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from cdc_core.encoder import Encoder
from cdc_core.messages import TopicNames
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.sink_calls import ObservedCalls, TracedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What a destination, a sink, a resolved sink and a sink reader are built from. Picklable, except for the encoder.

    Each process builds its own from the same values.
    """

    changefeed: str
    epoch: int
    """Counts the attempts of the changefeed: of two attempts the later one has the greater epoch."""
    uri: str = field(repr=False)
    """URI of the destination without its parameters, secrets included."""
    options: Any
    """An instance of the registered options class: URI parameters and options of the changefeed together."""
    encoder: Encoder
    full_table_name: bool = False
    topic: str | None = None
    """Pattern of topics, see `TopicNames`; None unless the user gives one."""
    routed: bool = False
    """Whether a query gives every row its topic, see `RowBatch`: then no row goes to a topic that a table names."""
    reserved_topics: frozenset[str] = frozenset()
    """Topics at this destination that no row may be given: those of the changefeed's dead letters."""
    tables: tuple[TableName, ...] = ()
    """Every table of the changefeed, including those that never change."""
    feed_id: str = ""
    """Random identity of the changefeed, 12 hexadecimal digits. A changefeed created anew under the same name has
    another one."""
    format: str = ""
    """Name of the encoder, as the option `format` gives it."""
    compression: str = "none"
    """How to compress files: "none" when the encoder compresses them itself, or the sink has no such option."""
    calls: ObservedCalls = field(default_factory=ObservedCalls, repr=False, compare=False)
    """How the engine listens to `repeating` and `traced_rows`."""

    def topics(self, prefix: str = "") -> TopicNames:
        """Return how this changefeed's tables become topics, with the sink's own *prefix*."""
        return TopicNames(full_table_name=self.full_table_name, prefix=prefix, pattern=self.topic)

    def repeating(self, reason: str, *, next_attempt_s: float) -> AbstractContextManager[None]:
        """Report, inside the block, that the component repeats something for *reason*, and when it tries again.

        For a component that repeats something by itself before its call returns: put it around the wait, in the thread
        that the engine called. The changefeed's status shows it; outside of a changefeed it does nothing. *reason* is
        one line without secrets, and is shortened when it is long. An error that is raised needs no such report.

        Raises: FencedError on entry when a newer attempt of the changefeed has begun; let it end the call.
        RetryableError when the progress store cannot be asked.
        """
        observer = self.calls.observer
        return nullcontext() if observer is None else observer.repeating(reason, next_attempt_s=next_attempt_s)

    def traced_rows(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        """Return the rows of *rows* that someone traces, each with its index. Nearly always empty, and cheap.

        For a sink that knows where a row arrives: call it in `emit`, and say so by `TracedRow.placed` or
        `TracedRow.acknowledged`, from any thread and until `flush` returns.
        """
        observer = self.calls.observer
        return () if observer is None else observer.traced_rows(rows)
