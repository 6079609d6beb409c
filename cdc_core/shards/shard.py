"""One source of several: its identity, its place, and its part of the key space."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cdc_core.errors import CdcError
from cdc_core.rangefeed import RangefeedContext
from cdc_core.shards.token import ShardedToken
from cdc_core.span import Span
from cdc_core.uris import place_of

__all__ = ["MAX_SHARDS", "Shard", "shard_feed_id", "shard_span", "shards_of"]

_PREFIX_BYTES = 2
MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The source at `index` of `count`. A rangefeed that is built from `context` reads this source alone."""

    index: int
    count: int
    context: RangefeedContext

    @property
    def place(self) -> str:
        """How messages name the source. Holds no secret."""
        return place_of(self.context.uri)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Put the source's name before the message of every error that leaves the block."""
        try:
            yield
        except CdcError as error:
            error.args = (f"source {self.place}: {error}",)
            raise

    def span(self, span: Span, *, table: str) -> Span:
        """Return where the changefeed has *span* of this source; *table* is the table's name there."""
        whole = shard_span(table, self.index, self.count)
        prefix = self.index.to_bytes(_PREFIX_BYTES)
        return Span(
            table,
            prefix + span.start if span.start else whole.start,
            whole.end if span.end is None else prefix + span.end,
        )


def shard_span(table: str, index: int, count: int) -> Span:
    """Return the keys of *table* that are in one shard. Those of all shards are the whole table."""
    start = b"" if index == 0 else index.to_bytes(_PREFIX_BYTES)
    return Span(table, start, None if index == count - 1 else (index + 1).to_bytes(_PREFIX_BYTES))


def shard_feed_id(feed_id: str, index: int) -> str:
    """Return the identity under which a changefeed creates things on one of its sources.

    Two of them may be databases of one server, where the names of slots must differ.
    """
    return hashlib.sha256(f"{feed_id}/{index}".encode()).hexdigest()[: len(feed_id)]


def shards_of(context: RangefeedContext, sources: Sequence[str]) -> tuple[Shard, ...]:
    """Return the shards of a changefeed: *context* is of the whole, *sources* are their URIs."""
    count = len(sources)
    token = None if context.saved is None else ShardedToken.from_json(context.saved)
    return tuple(
        Shard(
            index=index,
            count=count,
            context=replace(
                context,
                uri=uri,
                feed_id=shard_feed_id(context.feed_id, index),
                saved=None if token is None else token.shards[index].token,
                parallelism=max(1, -(-context.parallelism // count)),
            ),
        )
        for index, uri in enumerate(sources)
    )
