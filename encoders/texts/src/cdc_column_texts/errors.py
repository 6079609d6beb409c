"""How an encoder's parts say that a value cannot be written."""

from __future__ import annotations

__all__ = ["NoRepresentationError"]


class NoRepresentationError(ValueError):
    """One value of a column has no form in the format. `row` says where; the message ends a sentence, with a remedy."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
