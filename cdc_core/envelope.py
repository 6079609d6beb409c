"""Envelopes: the shape of a message. What depends on an envelope's name is decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ContractError, OptionError
from cdc_core.rows import Op, RowBatch

__all__ = ["ENVELOPES", "ENVELOPE_OPTIONS", "METADATA_MEMBER", "DeleteForm", "Envelope", "RowPlace"]

V = TypeVar("V")
RowPlace = Enum("RowPlace", ["MEMBER", "MESSAGE", "NOWHERE"])
"""Where the row after the change is: in the member `after`, the message itself, or nowhere."""
DeleteForm = Enum("DeleteForm", ["NULL_ROW", "KEY_AND_NULLS", "TOMBSTONE"])
"""What the message of a deleted row has: null in place of the row, the key and nulls, or no value at all."""
METADATA_MEMBER = "__crdb__"
"""The member that holds all metadata where the message is the row itself."""
_MEMBERS = {"key_in_value": "key", "mvcc_timestamp": "mvcc_timestamp", "topic_in_value": "topic", "updated": "updated"}
ENVELOPE_OPTIONS = ("diff", *_MEMBERS)
"""The options that add something to a message, in alphabetical order."""
_IMAGES = ("after", "before")
_WITHOUT_BEFORE = pa.array([Op.INSERT, Op.SCAN], pa.uint8())

_ROWS = {"wrapped": RowPlace.MEMBER, "bare": RowPlace.MESSAGE, "row": RowPlace.MESSAGE, "key_only": RowPlace.NOWHERE}
_DELETES = {"wrapped": DeleteForm.NULL_ROW, "bare": DeleteForm.KEY_AND_NULLS}
_PLACES = {"wrapped": ENVELOPE_OPTIONS, "bare": tuple(_MEMBERS), "row": (), "key_only": ()}
ENVELOPES = tuple(_ROWS)
"""Every envelope that a changefeed may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the messages of a changefeed hold, and where. Encoders, decoders and schemas ask it, never its name."""

    name: str = "wrapped"
    updated: bool = False
    diff: bool = False
    mvcc_timestamp: bool = False
    key_in_value: bool = False
    topic_in_value: bool = False

    @property
    def row(self) -> RowPlace:
        """Where the row after the change is."""
        return _ROWS[self.name]

    @property
    def delete(self) -> DeleteForm:
        """What the message of a deleted row has."""
        return _DELETES.get(self.name, DeleteForm.TOMBSTONE)

    @property
    def images(self) -> tuple[str, ...]:
        """The members that hold a row, in order."""
        return _IMAGES[: 1 + self.diff] if self.row is RowPlace.MEMBER else ()

    @property
    def metadata(self) -> tuple[str, ...]:
        """The members that hold metadata, in order. They follow the images, or are inside `METADATA_MEMBER`."""
        return tuple(member for option, member in _MEMBERS.items() if getattr(self, option))

    def check(self, owner: str) -> None:
        """Raise an OptionError for an option without a place in this envelope. *owner* begins it: "encoder 'json'"."""
        for option in ENVELOPE_OPTIONS:
            if getattr(self, option) and option not in _PLACES[self.name]:
                fit = " or ".join(f"'{name}'" for name, options in _PLACES.items() if option in options)
                raise OptionError(f"{owner}: envelope '{self.name}' has no place for '{option}'; use {fit}")

    def column(self, rows: RowBatch, member: str) -> pa.StructArray | None:
        """Return what *member* shows of each row, except `topic`; None for `before` when no row has one.

        A row without a commit time of its own has that of `updated`. Raises: ContractError when the source left out the
        row before an update or delete.
        """
        names, updated = rows.batch.schema.names, rows.column("updated")
        if member == "mvcc_timestamp":
            mvcc = rows.column("mvcc") if "mvcc" in names else updated
            return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)
        if member in names:
            return rows.column(member)
        if not pc.all(pc.is_in(rows.column("op"), _WITHOUT_BEFORE), min_count=0).as_py():
            raise ContractError(f"table {rows.schema.name}: the source left out column 'before', which 'diff' requires")
        return None

    def placed(self, metadata: Mapping[str, V], nest: Callable[[Mapping[str, V]], V]) -> dict[str, V]:
        """Return the members of a message that hold *metadata*; *nest* makes one value of several members."""
        return dict(metadata) if self.row is RowPlace.MEMBER else {METADATA_MEMBER: nest(metadata)}

    def split(
        self, message: Mapping[str, V], open_: Callable[[V], Mapping[str, V] | None]
    ) -> tuple[Mapping[str, V] | None, Mapping[str, V] | None, Mapping[str, V]]:
        """Return the row, the row before and the metadata of a decoded *message*; *open_* returns an object's members.

        A resolved mark has `resolved` as its only metadata, and nothing else.
        """
        rest = dict(message)
        if self.row is RowPlace.MEMBER:
            after, before = (open_(rest.pop(name)) if name in rest else None for name in _IMAGES)
            return after, before, rest
        metadata = open_(rest.pop(METADATA_MEMBER)) if METADATA_MEMBER in rest else None
        return rest, None, metadata or {}

    def to_json(self) -> dict[str, Any]:
        """Return the envelope as JSON values, for `from_json`."""
        value = asdict(self)
        return {"envelope": value.pop("name"), **value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        options = dict(value)
        return cls(name=options.pop("envelope"), **options)
