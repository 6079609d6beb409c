"""Options of the reference sink."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import MB, ByteSize, Duration, option

__all__ = ["ReferenceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOptions:
    """Options of the reference sink."""

    partitions: int = option(3, doc="Partitions of each topic.")
    buffer_size: ByteSize = option(ByteSize(MB), doc="Bytes of messages to hold before they are written.")
    max_message_bytes: ByteSize = option(ByteSize(MB // 4), doc="The largest value that a message may have.")
    patience: Duration = option(Duration(30.0), doc="How long to wait while the destination accepts nothing.")
    password: str | None = option(None, doc="Not used. Tests check that it is never shown.", secret=True)

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError("option 'partitions' must be at least 1")
