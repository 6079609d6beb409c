"""What the hook for sinks returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cdc_core.registrations import Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRegistration(Registration):
    """A destination. `schemes` are the URI schemes that select it.

    `sink`, `resolved_sink` and `destination` are its three parts.
    """

    KIND: ClassVar[str] = "sink"
    CLASSES: ClassVar[tuple[str, ...]] = ("sink", "resolved_sink", "destination", "reader", "history")

    schemes: tuple[str, ...]
    sink: str
    resolved_sink: str
    destination: str
    output: str
    """What the sink needs from the encoder, "messages" or "files"."""
    refuses_rows: bool = True
    """Whether the destination may refuse single rows. The engine then keeps the rows since the last flush, and flushes
    whenever they take 32 MB. Otherwise it keeps none and flushes once a slice."""
    records: bool = False
    """Whether the engine must call `ResolvedSink.record` with the entries of `Flushed.delivered`."""
    min_checkpoint_frequency_s: float = 0.0
    """Least time between two steps unless the user says otherwise: more than 0 if each step creates a file."""
    forced: frozenset[str] = frozenset()
    """Envelope options that are always on, such as `key_in_value` if there is no other place for keys."""
    envelopes: frozenset[str] | None = None
    """The envelopes that the sink accepts; None for all but `cloudevents`. A sink that accepts `cloudevents` gives each
    message the content type `EVENT_TYPE`, or in mode "binary" makes headers of `MessageBatch.attributes`, as
    `context.encoder.context.events` says. Files of lines have no tombstones: "wrapped", "bare" and "enriched" only."""
    compression_option: str = ""
    """Name of the option that says how files are compressed. Some encoders compress files themselves."""
    reader: str = ""
    """A `SinkReader`. Without one, nothing can be read back, neither by the conformance suite nor by an audit."""
    history: str = ""
    """A `StoredHistory`, of a sink of files that `records`: `ChangeReader` then reads every row exactly once."""
    secret_path: bool = False
    """Whether the path of the URI is a secret. Path and user are then never shown."""
    routes: bool = False
    """Whether the sink obeys `RowBatch.topic`, which a query may give. Otherwise such a query is refused."""
