"""Envelopes: the shape of a message. What depends on an envelope's name is decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

import pyarrow as pa

from cdc_core.enriched import timestamps_of_source
from cdc_core.envelope_shapes import (
    ENVELOPE_OPTIONS,
    ENVELOPES,
    METADATA_MEMBER,
    SHAPES,
    SOURCE_TIMES,
    DeleteForm,
    RowPlace,
    check_options,
    given_options,
    metadata_members,
)
from cdc_core.rows import RowBatch, shown_column

__all__ = ["ENVELOPES", "ENVELOPE_OPTIONS", "METADATA_MEMBER", "DeleteForm", "Envelope", "RowPlace"]

V = TypeVar("V")
_IMAGES = ("after", "before")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the messages of a changefeed contain, and where. Encoders, decoders and schemas never compare its name."""

    name: str = "wrapped"
    updated: bool = False
    diff: bool = False
    mvcc_timestamp: bool = False
    key_in_value: bool = False
    topic_in_value: bool = False
    enriched_properties: tuple[str, ...] = ()

    @property
    def enriched(self) -> bool:
        """Whether messages say what happened (`op`) and when they were created (`ts_ns`), and keys are objects."""
        return self.name == "enriched"

    @property
    def has_schema(self) -> bool:
        """Whether keys and values are objects with two members: `payload`, and the `schema` that describes it."""
        return "schema" in self.enriched_properties

    @property
    def row(self) -> RowPlace:
        """Where the row after the change is."""
        return SHAPES[self.name].row

    @property
    def delete(self) -> DeleteForm:
        """What the message of a deleted row contains."""
        return SHAPES[self.name].delete

    @property
    def images(self) -> tuple[str, ...]:
        """The members that contain a row, in order."""
        return _IMAGES[: 1 + self.diff] if self.row is RowPlace.MEMBER else ()

    @property
    def metadata(self) -> tuple[str, ...]:
        """The members that contain metadata, in order. They follow the images, or are inside `METADATA_MEMBER`."""
        return metadata_members(self.name, given_options(self), self.enriched_properties)

    @property
    def source_times(self) -> tuple[str, ...]:
        """The timestamps in the member `source`, in order."""
        return tuple(member for option, members in SOURCE_TIMES.items() if getattr(self, option) for member in members)

    def check(self, owner: str) -> None:
        """Raise an OptionError if an option has no place in this envelope. The error begins with *owner*."""
        check_options(owner, self.name, given_options(self), self.enriched_properties)

    def column(self, rows: RowBatch, member: str) -> pa.StructArray | None:
        """Return the column for *member*, which is not `topic`; None for `before` if no row has one.

        A row without its own commit time has that of `updated`. Raises: ContractError if the source left out the row
        before an update or delete.
        """
        return shown_column(rows, member)

    def placed(self, metadata: Mapping[str, V], nest: Callable[[Mapping[str, V]], V]) -> dict[str, V]:
        """Return the members of a message that contain *metadata*; *nest* makes one value of several members."""
        return dict(metadata) if self.row is RowPlace.MEMBER else {METADATA_MEMBER: nest(metadata)}

    def split(
        self, message: Mapping[str, V], open_: Callable[[V], Mapping[str, V] | None]
    ) -> tuple[Mapping[str, V] | None, Mapping[str, V] | None, Mapping[str, V]]:
        """Return row, previous row and metadata of a decoded *message*; *open_* returns an object's members.

        A resolved mark has only the metadata `resolved`, and no rows.
        """
        rest = dict(open_(message["payload"]) or {}) if self.has_schema and "payload" in message else dict(message)
        if "source" in self.metadata and "source" in rest:
            rest |= timestamps_of_source(open_(rest["source"]) or {})
        if self.row is RowPlace.MEMBER:
            after, before = (open_(rest.pop(name)) if name in rest else None for name in _IMAGES)
            return after, before, rest
        metadata = open_(rest.pop(METADATA_MEMBER)) if METADATA_MEMBER in rest else None
        return rest, None, metadata or {}

    def to_json(self) -> dict[str, Any]:
        """Return the envelope as JSON values, for `from_json`."""
        return {"envelope": self.name, **{k: v for k, v in asdict(self).items() if k != "name" and v != ()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        options = {**value, "enriched_properties": tuple(value.get("enriched_properties", ()))}
        return cls(name=options.pop("envelope"), **options)
