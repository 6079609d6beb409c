"""What an encoder can be asked for: an envelope with its options, as messages or as files."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import Envelope, RowPlace
from cdc_core.envelope import ENVELOPE_OPTIONS

__all__ = ["Form"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form of output."""

    output: str
    envelope: Envelope
    scans_only: bool = False

    @property
    def name(self) -> str:
        return self.envelope.name

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(name for name in ENVELOPE_OPTIONS if getattr(self.envelope, name))

    @property
    def has_row(self) -> bool:
        """Whether the value holds the row after the change."""
        return self.envelope.row is not RowPlace.NOWHERE

    def __str__(self) -> str:
        added = (*self.envelope.enriched_properties, *self.flags)
        return f"envelope '{self.name}'{' with ' if added else ''}{', '.join(added)}, as {self.output}"
