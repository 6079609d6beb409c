"""What the marks of a step say about each source."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.frontier import Frontier
from cdc_core.rangefeed import Token
from cdc_core.shards.shard import shard_span
from cdc_core.shards.token import ShardedToken
from cdc_core.slice_reader import SpanMark
from cdc_core.timestamp import Timestamp

__all__ = ["resolved_by_shard", "token_with_marks"]


def token_with_marks(token: Token, marks: Sequence[SpanMark], *, frontier: Frontier, before: Timestamp) -> Token:
    """Return *token*, at which a step with *marks* ended, as it is to be saved: *token* itself for a single source.

    *frontier* is that after the step, *before* the greatest timestamp of all earlier marks.
    """
    found = ShardedToken.found_in(token)
    if found is None:
        return token
    count = len(found.shards)
    latest = []
    for index in range(count):
        mine = (mark.timestamp for mark in marks if mark.span.overlap(shard_span(mark.span.table, index, count)))
        latest.append(max(mine, default=Timestamp()))
    return found.with_marks(latest, resolved_by_shard(frontier, count), before=before).to_json()


def resolved_by_shard(frontier: Frontier, count: int) -> list[Timestamp]:
    """Return what is resolved of all tables, by source."""
    tables = {span.table for span, _ in frontier}
    return [
        min((frontier.of(shard_span(table, index, count)) for table in tables), default=Timestamp())
        for index in range(count)
    ]
