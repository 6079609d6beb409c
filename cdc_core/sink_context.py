"""What the parts of a sink are built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cdc_core.encoder import Encoder
from cdc_core.messages import TopicNames
from cdc_core.schema import TableName

__all__ = ["SinkContext"]


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

    def topics(self, prefix: str = "") -> TopicNames:
        """Return how this changefeed's tables become topics, with the sink's own *prefix*."""
        return TopicNames(full_table_name=self.full_table_name, prefix=prefix, pattern=self.topic)
