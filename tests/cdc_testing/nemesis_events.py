"""What can happen in a nemesis run. A script is a list of these, decided by the seed before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FIRST_N = 1000
"""Every `n` that is written is at least this, and every `id` is less: so the values of a key tell its columns."""


@dataclass(frozen=True, slots=True)
class Write:
    """Insert or update the row with that `id`; without *values* delete it."""

    table: str
    id: int
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Transact:
    """Begin, write, commit."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Begin and write; the transaction stays open."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the open transaction."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """Roll the open transaction back."""


@dataclass(frozen=True, slots=True)
class Disturb:
    """Something that only the simulated database knows: `statement` of it, with its arguments by name."""

    statement: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddColumn:
    table: str
    column: str


@dataclass(frozen=True, slots=True)
class FillColumn:
    """Add a column that has *value* in every row, although no row is written: a text or an integer."""

    table: str
    column: str
    value: str | int


@dataclass(frozen=True, slots=True)
class DropColumn:
    table: str
    column: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    table: str
    column: str
    to: str


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Make an integer column a text column, although no row is written."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """Give the table another primary key. `id` is one of its columns."""

    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table that a pattern of the changefeed matches. No table of the script had its name."""

    table: str


@dataclass(frozen=True, slots=True)
class DropTable:
    """Drop such a table. All its rows have arrived."""

    table: str


@dataclass(frozen=True, slots=True)
class Rescan:
    """Ask the changefeed to emit the table again: all rows, or those with an `id` less than *below*."""

    table: str
    below: int | None


@dataclass(frozen=True, slots=True)
class Resume:
    """Start the changefeed with *options* over those of the script; return when it runs."""

    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop the changefeed: cleanly, or *abandoned* in the middle of a step."""

    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Let the next process of the engine that comes to *point* die, or fail with an error that a retry cures."""

    point: str
    killed: bool


@dataclass(frozen=True, slots=True)
class AwaitFault:
    """Wait until a process has obeyed the last fault."""


@dataclass(frozen=True, slots=True)
class Look:
    """Validate what the sink shows by now."""


@dataclass(frozen=True, slots=True)
class Read:
    """Wait until all that is committed is at the sink and saved, then validate."""


Event = (
    Transact
    | Open
    | Commit
    | RollBack
    | Disturb
    | AddColumn
    | FillColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | ChangeKey
    | CreateTable
    | DropTable
    | Rescan
    | Resume
    | Pause
    | Fault
    | AwaitFault
    | Look
    | Read
)
