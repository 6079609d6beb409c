"""What messages tell the user to do about tables and history that can no longer be followed."""

from __future__ import annotations

from cdc_core import LIST_AGAIN, RUN_AGAIN

NEW_SLOT = (
    "To continue under this name, request all tables and a new slot with `cdc rescan FILE NAME --all --new-slot`, "
    f"and {RUN_AGAIN}"
)
"""The remedy for lost history: a sentence without its full stop."""

READ_ANEW = (
    f"To read all tables again, use `cdc rescan FILE NAME --all --new-slot`, and {RUN_AGAIN}. To read only this"
    f" table again, {LIST_AGAIN}. Rows already at the destination are not deleted"
)
"""A sentence without its full stop."""

START_AGAIN = "Start again"
"""The remedy for lost history of a run that leaves nothing behind: a sentence without its full stop."""
