"""The statements of scripts. Each calls the method of `SimulatedDatabase` of the same name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc_conformance.simulated.script import Stage, Step
from cdc_core import Timestamp

__all__ = [
    "Abort",
    "AddColumn",
    "Begin",
    "ChangeKey",
    "ChangeType",
    "CollectGarbage",
    "Commit",
    "Crash",
    "Delete",
    "DropColumn",
    "Merge",
    "MoveReplicas",
    "Push",
    "Put",
    "Read",
    "Remove",
    "RenameColumn",
    "Restart",
    "Rollback",
    "SetLag",
    "SetSkew",
    "Split",
    "Tick",
    "TransferLease",
    "Write",
]


class Put(Step):
    """A transaction of its own writes one row: `Put("t", 1, n=2)`."""

    def __init__(self, table: str, id_: int, /, *, node: int | None = None, **values: Any) -> None:
        self.table, self.id, self.node, self.values = table, id_, node, values

    def __repr__(self) -> str:
        return f"Put({self.table!r}, {self.id}, {_shown(self.values | {'node': self.node})})"

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.put(self.table, node=self.node, id=self.id, **self.values)


class Write(Step):
    """An open transaction writes one row: `Write("a", "t", 1, n=2)`."""

    def __init__(self, name: str, table: str, id_: int, /, **values: Any) -> None:
        self.name, self.table, self.id, self.values = name, table, id_, values

    def __repr__(self) -> str:
        return f"Write({self.name!r}, {self.table!r}, {self.id}, {_shown(self.values)})"

    def play(self, stage: Stage) -> None:
        stage.transaction(self.name).put(self.table, id=self.id, **self.values)


@dataclass(frozen=True)
class Delete(Step):
    """A transaction of its own deletes one row."""

    table: str
    id: int
    node: int | None = None

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.delete(self.table, self.id, node=self.node)


@dataclass(frozen=True)
class Remove(Step):
    """An open transaction deletes one row."""

    name: str
    table: str
    id: int

    def play(self, stage: Stage) -> None:
        stage.transaction(self.name).delete(self.table, self.id)


@dataclass(frozen=True)
class Begin(Step):
    name: str
    node: int | None = None

    def play(self, stage: Stage) -> None:
        stage.transactions[self.name] = stage.db.begin(self.name, node=self.node)


@dataclass(frozen=True)
class Commit(Step):
    name: str
    later: bool = False

    def play(self, stage: Stage) -> Timestamp:
        return stage.transaction(self.name).commit(later=self.later)


@dataclass(frozen=True)
class Rollback(Step):
    name: str

    def play(self, stage: Stage) -> None:
        stage.transaction(self.name).rollback()


@dataclass(frozen=True)
class Push(Step):
    name: str

    def play(self, stage: Stage) -> Timestamp:
        return stage.transaction(self.name).push()


@dataclass(frozen=True)
class Abort(Step):
    name: str

    def play(self, stage: Stage) -> None:
        stage.transaction(self.name).abort()


@dataclass(frozen=True)
class Read(Step):
    """Reads the database as of now."""

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.as_of().timestamp


@dataclass(frozen=True)
class Tick(Step):
    times: int = 1
    ms: float = 100.0

    def play(self, stage: Stage) -> None:
        stage.db.tick(self.ms, times=self.times)


@dataclass(frozen=True)
class Split(Step):
    table: str
    at: int

    def play(self, stage: Stage) -> None:
        stage.db.split(self.table, at=self.at)


@dataclass(frozen=True)
class Merge(Step):
    table: str
    at: int

    def play(self, stage: Stage) -> None:
        stage.db.merge(self.table, at=self.at)


@dataclass(frozen=True)
class TransferLease(Step):
    table: str
    at: int
    to: int

    def play(self, stage: Stage) -> None:
        stage.db.transfer_lease(self.table, at=self.at, to=self.to)


@dataclass(frozen=True)
class MoveReplicas(Step):
    table: str
    at: int
    to: tuple[int, ...]

    def play(self, stage: Stage) -> None:
        stage.db.move_replicas(self.table, at=self.at, to=self.to)


@dataclass(frozen=True)
class SetLag(Step):
    table: str
    at: int
    ms: float
    node: int | None = None

    def play(self, stage: Stage) -> None:
        stage.db.set_lag(self.table, at=self.at, ms=self.ms, node=self.node)


@dataclass(frozen=True)
class SetSkew(Step):
    node: int
    ms: float

    def play(self, stage: Stage) -> None:
        stage.db.set_skew(self.node, self.ms)


@dataclass(frozen=True)
class Crash(Step):
    """A node of the database crashes. The marker `CRASH` is something else: the test decides what it does."""

    node: int

    def play(self, stage: Stage) -> None:
        stage.db.crash(self.node)


@dataclass(frozen=True)
class Restart(Step):
    node: int

    def play(self, stage: Stage) -> None:
        stage.db.restart(self.node)


@dataclass(frozen=True)
class AddColumn(Step):
    table: str
    column: str
    type: str = "string"
    default: Any = None

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.add_column(self.table, self.column, self.type, default=self.default)


@dataclass(frozen=True)
class DropColumn(Step):
    table: str
    column: str

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.drop_column(self.table, self.column)


@dataclass(frozen=True)
class RenameColumn(Step):
    table: str
    column: str
    to: str

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.rename_column(self.table, self.column, self.to)


@dataclass(frozen=True)
class ChangeType(Step):
    table: str
    column: str
    type: str

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.change_type(self.table, self.column, self.type)


@dataclass(frozen=True)
class ChangeKey(Step):
    table: str
    columns: tuple[str, ...]

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.change_key(self.table, *self.columns)


@dataclass(frozen=True)
class CollectGarbage(Step):
    force: bool = False

    def play(self, stage: Stage) -> Timestamp:
        return stage.db.collect_garbage(force=self.force)


def _shown(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
