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
    """What an encoder and its decoder are created from. Picklable."""

    changefeed: str
    envelope: Envelope
    """What each message contains."""
    options: Any
    """An instance of the registered options class."""
    output: str = "messages"
    """What the sink needs, "messages" or "files"."""
    preview: bool = False
    """Whether messages are only shown to a person: ask a schema registry then, but register nothing."""
    compression: str = "none"
    """How to compress files, for an encoder whose registration says `compresses`; "none" for all others."""
    source: SourceFacts = field(default_factory=SourceFacts)
    """What fills the members `source` and `op` of envelope `enriched`: see `SourceFacts.members` and `op_texts`."""
    events: CloudEvents | None = None
    """How messages are events in envelope `cloudevents`; None in any other."""
    key_column: str | None = None
    """The column that is the key of messages, of an encoder with `rekeys`; None for the primary key."""
    clock: Callable[[], int] = time.time_ns
    """Returns nanoseconds since 1970 for the member `ts_ns` of envelope `enriched`, once for each batch. It is the only
    time that a message may contain."""
