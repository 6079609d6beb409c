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
    """The values from which all parts of a sink are created. Picklable, except for the encoder.

    Each process builds its own from the same values.
    """

    changefeed: str
    epoch: int
    """Number of the attempt: of two attempts, the later one has the greater epoch."""
    uri: str = field(repr=False)
    """URI of the destination without its parameters, percent-encoded and with its password. `masked_uri` returns a form
    that can be shown."""
    options: Any
    """An instance of the registered options class: URI parameters and options of the changefeed together."""
    encoder: Encoder
    full_table_name: bool = False
    """Whether topics have the form `database.schema.table`. `topics` takes care of it."""
    topic: str | None = None
    """The pattern of topics that the user wrote, or None. `topics` takes care of it."""
    routed: bool = False
    """Whether a query gives every row its topic (see `RowBatch`), so that no row goes to the topic of its table."""
    reserved_topics: frozenset[str] = frozenset()
    """Topics at this destination that no row may be given: those of the changefeed's dead letters."""
    tables: tuple[TableName, ...] = ()
    """Every table of the changefeed, including those that never change."""
    feed_id: str = ""
    """Random identity of the changefeed, 12 hexadecimal digits. If a changefeed is created again under the same name,
    its identity differs.
    """
    format: str = ""
    """Name of the encoder, as the option `format` gives it."""
    compression: str = "none"
    """How to compress files: "none" when the encoder compresses them itself, or the sink has no such option."""
    calls: ObservedCalls = field(default_factory=ObservedCalls, repr=False, compare=False)
    """Lets the engine observe `repeating` and `traced_rows`. In a test, use `with
    context.calls.observed_by(observer):`.
    """

    def topics(self, prefix: str = "") -> TopicNames:
        """Return the topic names of this changefeed's tables, with the sink's own *prefix*."""
        return TopicNames(full_table_name=self.full_table_name, prefix=prefix, pattern=self.topic)

    def repeating(self, reason: str, *, next_attempt_s: float) -> AbstractContextManager[None]:
        """Report, during the block, that the component retries because of *reason*, and when it tries again.

        This is for a component that retries before its call returns: put it around the wait, in the thread that the
        engine called. The changefeed's status then shows the reason; otherwise, the call looks like a slow destination.
        Outside a changefeed, it does nothing. *reason* is one line without secrets, and is shortened if it is long.

        Raises: FencedError on entry if a newer attempt of the changefeed has begun; let it end the call. RetryableError
        if the progress store cannot be reached.
        """
        observer = self.calls.observer
        return nullcontext() if observer is None else observer.repeating(reason, next_attempt_s=next_attempt_s)

    def traced_rows(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        """Return the traced rows among *rows*, each with its index. Almost always empty, and cheap.

        This is for `cdc trace`. A sink that knows where a row arrives calls it in `emit`. Before `flush` returns, from
        any thread, the sink then calls `TracedRow.acknowledged` when the destination has the row, or `TracedRow.placed`
        when the row's place is known and `flush` makes it durable. For other sinks, `flush` acknowledges all rows.
        """
        observer = self.calls.observer
        return () if observer is None else observer.traced_rows(rows)
