"""What a rangefeed may declare beyond what every one must do."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAPABILITIES", "FIXTURES"]

CAPABILITIES: Mapping[str, str] = {
    "before_images": "It yields the row before each change when the option `diff` asks for it.",
    "mvcc": "It knows when each row was committed, also of rows of the initial scan.",
    "schema_changes": "It follows a table to which columns are added and from which they are taken away.",
    "multiple_slices": "It divides an initial scan into several slices that are read at the same time.",
    "forgets": "After `forget` it lacks all history that was released, so that `release` is seen to let it go.",
    "inspection": "The fixture `created` tells what the changefeed has created on the source.",
    "unreachable": "The fixture `unreachable_uri` names a source that nobody answers at.",
    "disturbance": "The source can be cut off and come back: `with disturbance.broken():`.",
    "secret": "The fixture `secret` is a secret that the source's URI holds.",
}

FIXTURES: Mapping[str, str] = {
    "inspection": "created",
    "unreachable": "unreachable_uri",
    "disturbance": "disturbance",
    "secret": "secret",
}
"""The fixture that a test class must bring for a capability, where one is needed."""
