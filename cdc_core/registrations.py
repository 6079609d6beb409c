"""What plugin hooks return: small values that name a component, and declare what it can do, without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A component by name. Everything that it can do is declared here and nowhere else.

    `options` and the fields in `CLASSES` are "module:Class". They stay unloaded until the component is used, each only
    in the processes that need it. `summary` is one line for listings; `install_hint`: what to install if loading fails.
    """

    KIND: ClassVar[str]
    CLASSES: ClassVar[tuple[str, ...]]
    """The fields that name classes: first those that must be given."""

    name: str
    options: str
    summary: str
    install_hint: str = ""


DEFAULT_SCHEMA = "public"
"""Where a database has the tables of those who name no schema, in PostgreSQL and in CockroachDB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangefeedRegistration(Registration):
    """A source. `schemes` are the URI schemes that select it.

    `rangefeed`, `planner`, `reader` and `history` are its four parts (see `cdc_core.rangefeed`); without `history` the
    source keeps all of it. `repeats_steps`: `StepPlanner.repeat` may return slices; each step's plan is saved then.
    `changes_tables`, `cursors`: `Rangefeed.start` accepts other tables, a cursor. `temporary`: it obeys the context's.
    `writer`: a `SourceWriter`. `replicas`: slices have a locality, and the planner obeys `placement`. `schema`: that of
    a table which is listed without one; "" for a source without schemas.
    """

    KIND: ClassVar[str] = "rangefeed"
    CLASSES: ClassVar[tuple[str, ...]] = ("rangefeed", "planner", "reader", "history", "writer")

    schemes: tuple[str, ...]
    rangefeed: str
    planner: str
    reader: str
    history: str = "cdc_core.source_history:SourceHistory"
    writer: str = ""
    repeats_steps: bool = False
    changes_tables: bool = False
    cursors: bool = False
    replicas: bool = False
    temporary: bool = False
    schema: str = DEFAULT_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRegistration(Registration):
    """An encoder; `name` is what the option `format` says.

    `envelopes`, `outputs` of {"messages", "files"}: its forms. `compresses`: it obeys `EncoderContext.compression`.
    `scans_only`: no deletes (EncodeError), no marks (TerminalError). `rekeys`: its keys are those of `Encoder.keyed`.
    """

    KIND: ClassVar[str] = "encoder"
    CLASSES: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    encoder: str
    envelopes: frozenset[str]
    outputs: frozenset[str]
    decoder: str = ""
    compresses: bool = False
    scans_only: bool = False
    rekeys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRegistration(Registration):
    """A destination. `schemes` are the URI schemes that select it.

    `sink`, `resolved_sink` and `destination` are its three parts. `output` is what it asks of the encoder, "messages"
    or "files". `refuses_rows`: it may refuse single rows; the engine then keeps the rows since the last flush, and
    flushes whenever they take 32 MB. `records`: `ResolvedSink.record` needs what `Flushed.delivered` said.
    `min_checkpoint_frequency_s`: least time between two steps unless the user says otherwise; more than 0 where a step
    makes a file. `forced`: envelope options that are always on, as key_in_value where the key has no other place.
    `envelopes`: those it accepts; None: all but `cloudevents`. `compression_option`: the option that says how files are
    compressed, which an encoder may have to do. `reader`: its `SinkReader`, which sees what a consumer sees. `history`:
    its `StoredHistory`. `secret_path`: path and user of the URI are never shown. `routes`: it obeys `RowBatch.topic`.
    """

    KIND: ClassVar[str] = "sink"
    CLASSES: ClassVar[tuple[str, ...]] = ("sink", "resolved_sink", "destination", "reader", "history")

    schemes: tuple[str, ...]
    sink: str
    resolved_sink: str
    destination: str
    output: str
    refuses_rows: bool = True
    records: bool = False
    min_checkpoint_frequency_s: float = 0.0
    forced: frozenset[str] = frozenset()
    envelopes: frozenset[str] | None = None
    compression_option: str = ""
    reader: str = ""
    history: str = ""
    secret_path: bool = False
    routes: bool = False
