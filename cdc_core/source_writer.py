"""Source writers change what a rangefeed reads, for conformance tests: they must know what was committed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWriterContext:
    """The values from which a source writer is created."""

    uri: str = field(repr=False)
    """URI of the source, as the rangefeed gets it."""
    options: Any
    """An instance of the rangefeed's options class."""


class SourceTransaction(ABC):
    """An open transaction; several may be open at once. Nothing of it is visible before `commit` returns."""

    @abstractmethod
    def put(self, table: str, row: Mapping[str, Any]) -> None:
        """Insert *row*, or update the row with its `id`; columns that it does not name keep their value."""

    @abstractmethod
    def delete(self, table: str, id_: int) -> None:
        """Delete the row with that `id`, if there is one."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...


class SourceWriter(ABC):
    """Writes to its own tables in the database that a rangefeed reads. Constructors connect to nothing.

    Threads take turns with an instance, and one of them writes while others read the source.

    Every table has the columns `id` (integer, primary key), `n` (integer, never null) and `note` (text, or null), and
    those that were added. *table* is the name as the user of a changefeed writes it.
    """

    def __init__(self, context: SourceWriterContext) -> None:
        self.context = context

    @abstractmethod
    def create_table(self, table: str) -> None:
        """Create *table*, empty, so that it can be watched with before images."""

    @abstractmethod
    def drop_table(self, table: str) -> None:
        """Drop *table* if it exists. May be called again."""

    @abstractmethod
    def begin(self) -> SourceTransaction:
        """Return a new transaction."""

    @abstractmethod
    def rows(self, table: str) -> Mapping[int, Mapping[str, Any]]:
        """Return the committed rows of *table* by `id`."""

    @abstractmethod
    def add_column(self, table: str, column: str) -> None:
        """Add a text column that may be null and is null in every row."""

    def add_filled_column(self, table: str, column: str, value: str) -> bool:  # noqa: ARG002
        """Add a text column whose value is *value* in every row, including later ones, as a default does; return True.

        This writes no row. By default, return False: nothing is done, and such a change is not tested.
        """
        return False

    def change_key(self, table: str, columns: Sequence[str]) -> bool:  # noqa: ARG002
        """Make *columns*, which include `id` and contain no nulls, the primary key of *table*; return True.

        This writes no row. By default, return False: nothing is done, and changed keys are not tested.
        """
        return False

    @abstractmethod
    def drop_column(self, table: str, column: str) -> None:
        """Remove a column that `add_column` or `add_filled_column` added."""

    @abstractmethod
    def close(self) -> None:
        """Roll back open transactions and release connections. May be called twice."""
