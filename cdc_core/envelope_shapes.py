"""What each envelope is: where the row is, what a delete looks like, and which options have a place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from cdc_core.errors import OptionError

RowPlace = Enum("RowPlace", ["MEMBER", "MESSAGE", "NOWHERE"])
"""Where the row after the change is: in the member `after`, the message itself, or nowhere."""
DeleteForm = Enum("DeleteForm", ["NULL_ROW", "KEY_AND_NULLS", "TOMBSTONE"])
"""What the message of a deleted row has: null in place of the row, the key and nulls, or no value at all."""
METADATA_MEMBER = "__crdb__"
"""The member that holds all metadata where the message is the row itself."""
MEMBERS = {"key_in_value": "key", "mvcc_timestamp": "mvcc_timestamp", "topic_in_value": "topic", "updated": "updated"}
"""The member that an option adds."""
ENVELOPE_OPTIONS = ("diff", *MEMBERS)
"""The options that add something to a message, in alphabetical order."""
SOURCE_TIMES = {"mvcc_timestamp": ("mvcc_timestamp",), "updated": ("ts_hlc", "ts_ns")}
"""In envelope `enriched`: the members that these options add to the member `source`."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What an envelope is. `options` are those of `ENVELOPE_OPTIONS` that have a place in it.

    `events`: messages are those of CloudEvents, which need a content type, and may have attributes beside the value.
    """

    row: RowPlace
    delete: DeleteForm
    options: tuple[str, ...] = ()
    events: bool = False


SHAPES = {
    "wrapped": _Shape(RowPlace.MEMBER, DeleteForm.NULL_ROW, ENVELOPE_OPTIONS),
    "bare": _Shape(RowPlace.MESSAGE, DeleteForm.KEY_AND_NULLS, tuple(MEMBERS)),
    "row": _Shape(RowPlace.MESSAGE, DeleteForm.TOMBSTONE),
    "key_only": _Shape(RowPlace.NOWHERE, DeleteForm.TOMBSTONE),
    "enriched": _Shape(RowPlace.MEMBER, DeleteForm.NULL_ROW, ENVELOPE_OPTIONS),
    "cloudevents": _Shape(RowPlace.MEMBER, DeleteForm.NULL_ROW, ENVELOPE_OPTIONS, events=True),
}
"""Every envelope, by its name. The data of `cloudevents` is what `wrapped` has."""
ENVELOPES = tuple(SHAPES)
"""Every envelope that a changefeed may ask for."""


def given_options(envelope: object) -> list[str]:
    """Return the options of `ENVELOPE_OPTIONS` that are on: attributes of an `Envelope`."""
    return [option for option in ENVELOPE_OPTIONS if getattr(envelope, option)]


def check_options(owner: str, envelope: str, given: Collection[str], properties: Collection[str]) -> None:
    """Raise an OptionError for an option or an enriched property without a place, see `Envelope.check`."""
    for option in given:
        if option not in SHAPES[envelope].options:
            fit = " or ".join(f"'{other}'" for other, shape in SHAPES.items() if option in shape.options)
            raise OptionError(f"{owner}: envelope '{envelope}' cannot hold '{option}'; use {fit}")
        if envelope == "enriched" and option in SOURCE_TIMES and "source" not in properties:
            raise OptionError(
                f"{owner}: envelope '{envelope}' has '{option}' in its source; set enriched_properties = 'source'"
            )
    if properties and envelope != "enriched":
        raise OptionError(f"{owner}: option 'enriched_properties' requires envelope 'enriched'; remove it")


def metadata_members(envelope: str, given: Collection[str], properties: Collection[str]) -> tuple[str, ...]:
    """Return the members that hold metadata, in alphabetical order."""
    found = [member for option, member in MEMBERS.items() if option in given]
    if envelope != "enriched":
        return tuple(found)
    source = ["source"] if "source" in properties else []
    return tuple(sorted(["op", "ts_ns", *source, *(member for member in found if member not in SOURCE_TIMES)]))
