"""Scripts: statements on a simulated database as a list, with markers where the test does something of its own.

    play(db, [Put("t", 1, n=1), SPLIT, Tick()], on={SPLIT: lambda: db.split("t", at=5)})

A marker is only a name; `on` says what it does. So several tests can share a script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_conformance.simulated.database import SimulatedDatabase, Txn
from cdc_conformance.simulated.errors import StatementError, TransactionAbortedError


class Marker(str):
    """A place in a script where the test does something."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


CRASH, PAUSE, RESUME, SPLIT = Marker("CRASH"), Marker("PAUSE"), Marker("RESUME"), Marker("SPLIT")


@dataclass(frozen=True, slots=True)
class Stage:
    """What a script acts on: the database, and the transactions that the script has begun, by name."""

    db: SimulatedDatabase
    transactions: dict[str, Txn]

    def transaction(self, name: str) -> Txn:
        if name not in self.transactions:
            raise TransactionAbortedError(f"the script has not begun a transaction {name!r}")
        return self.transactions[name]


class Step:
    """One statement: calls `method`. `names` are those of the arguments that come without a name."""

    method: str
    names: tuple[str, ...] = ()

    def __init__(self, *args: Any, **values: Any) -> None:
        self.args, self.values = args, values

    def __repr__(self) -> str:
        shown = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.values.items())]
        return f"{type(self).__name__}({', '.join(shown)})"

    def play(self, stage: Stage) -> Any:
        """Execute the statement and return its outcome. Raises: StatementError when the database refuses it."""
        return self.call(stage.db, *self.args)

    def call(self, target: object, *args: Any) -> Any:
        return getattr(target, self.method)(**dict(zip(self.names, args, strict=False)), **self.values)


def play(
    db: SimulatedDatabase,
    script: Sequence[Step | Marker],
    on: Mapping[Marker, Callable[[], Any]] | None = None,
    *,
    skip_refused: bool = False,
) -> list[Any]:
    """Play *script* on *db* and return the outcome of each item. *on* maps each marker to a function.

    With *skip_refused*, for random scripts, the outcome of a refused statement is None. Raises: ValueError, before
    anything is executed, when *on* lacks a marker of the script.
    """
    actions = on or {}
    missing = {str(item) for item in script if isinstance(item, Marker) and item not in actions}
    if missing:
        raise ValueError(f"the script has markers that are not in `on`: {', '.join(sorted(missing))}")
    stage = Stage(db, {})
    outcomes = []
    for item in script:
        try:
            outcomes.append(actions[item]() if isinstance(item, Marker) else item.play(stage))
        except StatementError:
            if not skip_refused or isinstance(item, Marker):
                raise
            outcomes.append(None)
    return outcomes
