"""What the marks of a step say about each source."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.frontier import Frontier
from cdc_core.rangefeed_values import Token
from cdc_core.shards.shard import shard_span
from cdc_core.shards.token import ShardedToken, ShardState
from cdc_core.slice_reader import SpanMark
from cdc_core.timestamp import Timestamp


def token_with_marks(token: Token, marks: Sequence[SpanMark], *, frontier: Frontier, before: Timestamp) -> Token:
    """Return *token*, at which a step with *marks* ended, as it is to be saved: *token* itself for a single source.

    *frontier* is that after the step, *before* the greatest timestamp of all earlier marks.
    """
    found = ShardedToken.found_in(token)
    if found is None:
        return token
    count = len(found.shards)
    latest, scanned = [Timestamp()] * count, [Timestamp()] * count
    for mark in marks:
        for index in range(count):
            if mark.span.overlap(shard_span(mark.span.table, index, count)):
                latest[index] = max(latest[index], mark.timestamp)
                if not mark.resolved:
                    scanned[index] = max(scanned[index], mark.timestamp)
    resolved = resolved_by_shard(frontier, count)
    return found.with_marks(latest, resolved, scanned, before=before, high_water=frontier.high_water).to_json()


def last_moved(before: Token, token: Token) -> Timestamp | None:
    """Return what is resolved of the source that is furthest behind among those that moved between two saved tokens.

    None when none moved, or one moved and resolved nothing: it scans.
    """
    was, found = ShardedToken.found_in(before), ShardedToken.from_json(token)
    known = (ShardState(),) * len(found.shards) if was is None else was.shards
    moved = [
        (now.resolved, then.resolved) for now, then in zip(found.shards, known, strict=True) if now.token != then.token
    ]
    if any(now <= then for now, then in moved):
        return None
    return min((now for now, _ in moved), default=None)


def resolved_by_shard(frontier: Frontier, count: int) -> list[Timestamp]:
    """Return what is resolved of all tables, by source."""
    tables = {span.table for span, _ in frontier}
    return [
        min((frontier.of(shard_span(table, index, count)) for table in tables), default=Timestamp())
        for index in range(count)
    ]
