"""What can happen in a nemesis run. A script is a list of these, decided by the seed before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FIRST_N = 1000
"""Every `n` that is written is at least this, and every `id` is less: so the values of a key tell its columns."""


class Event:
    """What a script is made of."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Insert or update the row with that `id`; without *values* delete it."""

    table: str
    id: int
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Transact(Event):
    """Begin, write, commit."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Open(Event):
    """Begin and write; the transaction stays open."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Commit(Event):
    """Commit the open transaction."""


@dataclass(frozen=True, slots=True)
class RollBack(Event):
    """Roll the open transaction back."""


@dataclass(frozen=True, slots=True)
class Disturb(Event):
    """Something that only the simulated database knows: `statement` of it, with its arguments by name."""

    statement: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddColumn(Event):
    table: str
    column: str


@dataclass(frozen=True, slots=True)
class FillColumn(Event):
    """Add a column that has *value* in every row, although no row is written: a text or an integer."""

    table: str
    column: str
    value: str | int


@dataclass(frozen=True, slots=True)
class DropColumn(Event):
    table: str
    column: str


@dataclass(frozen=True, slots=True)
class RenameColumn(Event):
    table: str
    column: str
    to: str


@dataclass(frozen=True, slots=True)
class ChangeType(Event):
    """Make an integer column a text column, although no row is written."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class ChangeKey(Event):
    """Give the table another primary key. `id` is one of its columns."""

    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateTable(Event):
    """Create a table that a pattern of the changefeed matches. No table of the script had its name."""

    table: str


@dataclass(frozen=True, slots=True)
class DropTable(Event):
    """Drop such a table. All its rows have arrived."""

    table: str


@dataclass(frozen=True, slots=True)
class Rescan(Event):
    """Ask the changefeed to emit the table again: all rows, or those with an `id` less than *below*."""

    table: str
    below: int | None


@dataclass(frozen=True, slots=True)
class Resume(Event):
    """Start the changefeed with *options* over those of the script; return when it runs."""

    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause(Event):
    """Stop the changefeed: cleanly, or *abandoned* in the middle of a step."""

    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """Let the next process of the engine that comes to *point* die, or fail with an error that a retry cures."""

    point: str
    killed: bool


@dataclass(frozen=True, slots=True)
class AwaitFault(Event):
    """Wait until a process has obeyed the last fault."""


@dataclass(frozen=True, slots=True)
class Look(Event):
    """Validate what the sink shows by now."""


@dataclass(frozen=True, slots=True)
class Read(Event):
    """Wait until all that is committed is at the sink and saved, then validate."""
