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
    """Whether the destination may refuse single rows. If so, the engine keeps the rows since the last flush, and
    flushes whenever they take 32 MB. Otherwise, it keeps none and flushes once per slice.
    """
    records: bool = False
    """Whether the engine must call `ResolvedSink.record` with the entries of `Flushed.delivered`."""
    min_checkpoint_frequency_s: float = 0.0
    """Default of the minimum time between two steps: more than 0 if each step creates a file."""
    forced: frozenset[str] = frozenset()
    """Envelope options that are always on, such as `key_in_value` if keys have no other place."""
    envelopes: frozenset[str] | None = None
    """The envelopes that the sink accepts; None for all but `cloudevents`. A sink that accepts `cloudevents` gives each
    message the content type `EVENT_TYPE`, or in mode "binary" makes headers of `MessageBatch.attributes`, as
    `context.encoder.context.events` says. Files of lines have no tombstones: "wrapped", "bare" and "enriched" only."""
    compression_option: str = ""
    """Name of the option that says how files are compressed. Some encoders compress files themselves."""
    reader: str = ""
    """A `SinkReader`. Without one, neither the conformance suite nor an audit can read anything back."""
    history: str = ""
    """A `StoredHistory`, for a sink of files that `records`, so that `ChangeReader` reads every row exactly once."""
    secret_path: bool = False
    """Whether the path of the URI is a secret. If so, path and user are never shown."""
    routes: bool = False
    """Whether the sink obeys `RowBatch.topic`, which a query may set. Otherwise, such a query is refused."""
