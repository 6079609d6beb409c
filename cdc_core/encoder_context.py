"""What an encoder and its decoder are created from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc_core.cloudevents import CloudEvents
from cdc_core.enriched import SourceFacts
from cdc_core.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderContext:
    """The values from which an encoder and its decoder are created. Picklable."""

    changefeed: str
    envelope: Envelope
    """What each message contains."""
    options: Any
    """An instance of the registered options class."""
    output: str = "messages"
    """What the sink needs, "messages" or "files"."""
    preview: bool = False
    """Whether messages are only shown to a person. If so, look up schemas in a registry, but register none."""
    compression: str = "none"
    """How to compress files, for an encoder whose registration sets `compresses`; "none" for all others."""
    source: SourceFacts = field(default_factory=SourceFacts)
    """The values for the member `source` of envelope `enriched`: see `SourceFacts.members`."""
    events: CloudEvents | None = None
    """How messages become events in envelope `cloudevents`; None in any other envelope."""
    key_column: str | None = None
    """For an encoder with `rekeys`, the column that is the key of messages; None for the primary key."""
    clock: Callable[[], int] = time.time_ns
    """Returns nanoseconds since 1970, for the member `ts_ns` of envelope `enriched`. Call it once for each batch. It is
    the only clock whose time a message may contain.
    """
