"""What a rangefeed may declare in `capabilities`, beyond what every rangefeed must do."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAPABILITIES", "FIXTURES"]

CAPABILITIES: Mapping[str, str] = {
    "before_images": "It yields the row before each change if the option `diff` is set.",
    "mvcc": "It knows when each row was committed, also for rows of the initial scan.",
    "schema_changes": "It follows a table while columns are added and dropped.",
    "rescans": "It reads tables again, or rows that `id < 4` selects: its planner has `check_rescan` and `scan_again`.",
    "moves": "A stopped changefeed can be moved to another position: its driver's part has `move`.",
    "multiple_slices": "It divides an initial scan into several slices that are read at the same time.",
    "forgets": "After `forget` it no longer has the history that was released, which proves that `release` works.",
    "cursors": "It starts at a cursor. The fixture `cursor` returns options with one.",
    "inspection": "The fixture `created` returns what the changefeed has created on the source.",
    "unreachable": "The fixture `unreachable_uri` names a source that does not answer.",
    "disturbance": "The source can be cut off and come back: `with disturbance.broken():`.",
    "secret": "The fixture `secret` is a secret in the source's URI.",
}

FIXTURES: Mapping[str, str] = {
    "cursors": "cursor",
    "inspection": "created",
    "unreachable": "unreachable_uri",
    "disturbance": "disturbance",
    "secret": "secret",
}
"""The fixture that a test class must override to declare a capability, if there is one."""
