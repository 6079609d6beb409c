"""What a rangefeed and its callers exchange: tokens, moves, rescans, the progress of scans, objects on the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc_core.errors import ConfigError

Token = dict[str, Any]
"""A JSON object of the rangefeed's own that says where in its history a step ends. Tokens are saved, shown to people
and compared for equality. They contain no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What `Rangefeed.move` returns: `token`, from which the next run starts, and both positions as people write them.

    A move to a later position leaves out the changes in between, and only those: the changes of tables' shapes that the
    next run finds are carried out as if it had read everything. `Rangefeed.start` may release what is left out; until
    then, moving to `before` undoes the move.

    After a move *back*, the changes in between are read again, in their order. Their `updated` is later than everything
    that was delivered, as resolved marks must stay true, and nothing is resolved before the position that was left.

    Refused with a ConfigError: a position in the future, or before what the source retains, with what that is; while a
    scan is not complete; back over a change of a table's shape, as rows would end with the old one; forward
    when a run has begun to read changes again and has not reached the position that was left, as rows would end with an
    old version.
    """

    token: Token
    before: str
    after: str
    forward: bool
    back: bool
    """The directions; both for several sources of which some go back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescan:
    """A watched table that is to be read again, by its full name; all of them when it is None.

    With `where`, a predicate in the source's own language, only the rows that it selects.
    """

    table: str | None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.table is None and self.where is not None:
            raise ConfigError("a predicate selects rows of one table; name the table")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """How much of an initial scan or a backfill lies behind a token. `unit` names what is counted, such as 'chunks'."""

    done: int
    total: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObjects:
    """What one changefeed has created. A rangefeed built with the same `changefeed` and `feed_id` drops it."""

    name: str
    """What people know it by, such as the name of a replication slot. No two entries have the same."""
    changefeed: str
    """Name of the changefeed, as far as the source still knows it."""
    feed_id: str
    kinds: tuple[str, ...]
    """What it consists of, such as "replication slot" and "publication"."""
    retained_bytes: int | None = None
    """How much history the source retains for it, None when that is unknown."""
    sure: bool = True
    """Whether a changefeed created it for sure. Otherwise it may be another program's that is named alike."""
    active: bool = False
    """Whether a process uses it now. A changefeed that is stopped or between two steps need not."""
