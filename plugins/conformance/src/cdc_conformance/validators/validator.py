"""What all validators have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cdc_conformance.validators.events import SeenMark, SeenRow

__all__ = ["All", "Validator"]


class Validator(Protocol):
    """Takes every event in the order in which a consumer gets it; afterwards `failures` says in words what was wrong.

    Repeats are fed too: what a repeat may be is the validator's business. A failure names topic, partition, key and
    timestamps as far as it has them, and what was expected. No failures means that all was well.
    """

    def note_row(self, row: SeenRow) -> None: ...

    def note_resolved(self, mark: SeenMark) -> None: ...

    def failures(self) -> list[str]: ...


class All:
    """Feeds several validators; its failures are all of theirs, in their order."""

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
