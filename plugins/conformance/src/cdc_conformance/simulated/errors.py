"""Why the simulated database refuses a statement. A refused statement changes nothing."""

from __future__ import annotations


class StatementError(ValueError):
    """The statement is invalid: there is no such table, row, column, range, node or transaction."""


class WriteConflictError(StatementError):
    """Another open transaction has written the row. A real database would wait; a single thread cannot."""


class TransactionAbortedError(StatementError):
    """The transaction was aborted by another one or has ended. Begin a new one."""


class UnavailableError(StatementError):
    """Too few replicas of the range are alive to write to it."""
