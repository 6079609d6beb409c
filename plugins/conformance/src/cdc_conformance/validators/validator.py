"""The interface of validators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from cdc_conformance.validators.events import SeenMark, SeenRow

__all__ = ["All", "Checked", "Validator"]


class Validator(Protocol):
    """Takes every event in the order in which a consumer gets it. `failures` then returns what was wrong, in words.

    Repeats are fed too. A failure names topic, partition, key and timestamps, if known, and the expected value. No
    failures means success.
    """

    def note_row(self, row: SeenRow) -> None: ...

    def note_resolved(self, mark: SeenMark) -> None: ...

    def failures(self) -> list[str]: ...


@dataclass
class Checked:
    """The part of a validator that most have. It ignores marks."""

    _failures: list[str] = field(default_factory=list, init=False)

    def note_resolved(self, mark: SeenMark) -> None:
        """Ignore *mark*."""

    def failures(self) -> list[str]:
        return self._failures


class All:
    """Feeds several validators. Its failures are those of all of them, in their order."""

    def __init__(self, validators: Iterable[Validator]) -> None:
        self.validators = tuple(validators)

    def note_row(self, row: SeenRow) -> None:
        for validator in self.validators:
            validator.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        for validator in self.validators:
            validator.note_resolved(mark)

    def failures(self) -> list[str]:
        return [failure for validator in self.validators for failure in validator.failures()]
