"""Why the simulated database refuses a statement. Nothing has changed when one of these is raised."""

from __future__ import annotations

__all__ = ["StatementError", "TransactionAbortedError", "UnavailableError", "WriteConflictError"]


class StatementError(ValueError):
    """The statement makes no sense: no such table, row, column, range, node or transaction."""


class WriteConflictError(StatementError):
    """Another open transaction has written the row. A database would wait; one thread cannot."""


class TransactionAbortedError(StatementError):
    """The transaction was aborted by another one, or is not open any more: begin again."""


class UnavailableError(StatementError):
    """Too few replicas of the range are alive to write to it."""
