"""What messages tell the user to do about a table that can no longer be followed."""

from __future__ import annotations

__all__ = ["READ_ANEW"]

READ_ANEW = (
    "To read the table anew, run once without it in 'tables', and then list it again; rows of it that are at the "
    "destination are not deleted there"
)
"""A sentence without its full stop."""
