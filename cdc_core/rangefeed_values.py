"""What a rangefeed and its callers exchange: tokens, moves, rescans, the progress of scans, objects on the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc_core.errors import ConfigError

Token = dict[str, Any]
"""A JSON object in the rangefeed's own form that says where in its history a step ends. Tokens are saved, shown to
people and compared for equality. They contain no secret.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What `Rangefeed.move` returns: `token`, from which the next run starts, and both positions in readable form.

    A move to a later position leaves out the changes in between, and nothing else: the next run handles changes to the
    tables' shapes as if it had read everything. `Rangefeed.start` may release what is left out; until then, moving to
    `before` undoes the move.

    After a move *back*, the changes in between are read again, in order. Their `updated` is later than everything that
    was delivered, so that resolved marks stay true, and nothing is resolved until the previous position is reached.

    These moves are refused with a ConfigError: to a position in the future; to a position before the retained history,
    which the error then gives; while a scan is not complete; back over a change of a table's shape, because rows would
    end with the old shape; and forward while a run that reads changes again has not reached the previous position,
    because rows would end with an old version.
    """

    token: Token
    before: str
    after: str
    forward: bool
    back: bool
    """The directions; both are true if some of several sources move back and others forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescan:
    """A request to read a watched table again, named by its full name; None means all tables. `where`, a predicate in
    the source's own language, limits the request to the rows that it selects.
    """

    table: str | None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.table is None and self.where is not None:
            raise ConfigError("a predicate selects rows of one table; name the table")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """How much of an initial scan or a backfill is done at a token. `unit` names what is counted, such as 'chunks'."""

    done: int
    total: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObjects:
    """What one changefeed has created. A rangefeed built with the same `changefeed` and `feed_id` drops it."""

    name: str
    """The name that people use, such as that of a replication slot. It is unique among the entries."""
    changefeed: str
    """Name of the changefeed, if the source still has it."""
    feed_id: str
    kinds: tuple[str, ...]
    """What it consists of, such as "replication slot" and "publication"."""
    retained_bytes: int | None = None
    """How much history the source retains for it; None if unknown."""
    sure: bool = True
    """Whether a changefeed certainly created it. Otherwise, it may belong to another program that uses such names."""
    active: bool = False
    """Whether a process uses it now. It can be false while the changefeed is stopped or between two steps."""
