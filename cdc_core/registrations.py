"""What plugin hooks return: small values that name a component, and declare what it can do, without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A component by name. Everything that it can do is declared here and nowhere else.

    `options` and the fields in `CLASSES` are "module:Class". Each class is imported when it is used, only in the
    processes that need it.
    """

    KIND: ClassVar[str]
    CLASSES: ClassVar[tuple[str, ...]]
    """The fields that name classes, the required ones first."""

    name: str
    """The name in `cdc plugins`, `cdc options` and errors."""
    options: str
    summary: str
    """One line for `cdc plugins`."""
    install_hint: str = ""
    """What to install if a class cannot be imported, such as an extra."""


DEFAULT_SCHEMA = "public"
"""The schema of tables without a schema name, in PostgreSQL and in CockroachDB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangefeedRegistration(Registration):
    """A source. `schemes` are the URI schemes that select it.

    `rangefeed`, `planner` and `reader` are its parts, see `cdc_core.rangefeed`; `history` is the fourth.
    """

    KIND: ClassVar[str] = "rangefeed"
    CLASSES: ClassVar[tuple[str, ...]] = ("rangefeed", "planner", "reader", "history", "writer")

    schemes: tuple[str, ...]
    rangefeed: str
    planner: str
    reader: str
    history: str = "cdc_core.source_history:SourceHistory"
    """By default the source keeps all its history."""
    writer: str = ""
    """A `SourceWriter`. Without one, the conformance suite cannot test the source."""
    repeats_steps: bool = False
    """Whether `StepPlanner.repeat` may return slices. If so, plans are saved, with one small write per step."""
    changes_tables: bool = False
    """Whether `Rangefeed.start` accepts tables that differ from those of the saved token, and `StepPlanner.scan_again`
    reads a table again that was dropped and added before the next run. Otherwise, changing the list of tables is an
    error before the start.
    """
    cursors: bool = False
    """Whether `Rangefeed.start` obeys `RangefeedContext.cursor`. Otherwise, the option `cursor` is an error."""
    replicas: bool = False
    """Whether slices have a locality and the planner obeys `RangefeedContext.placement`. Otherwise, the option
    `placement` is an error.
    """
    temporary: bool = False
    """Whether a run can leave nothing behind (see `RangefeedContext.temporary`). Otherwise, `cdc watch` and `cdc
    preview` refuse the source.
    """
    schema: str = DEFAULT_SCHEMA
    """The schema of tables that are listed without one; empty for a source without schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRegistration(Registration):
    """An encoder. `name` is the value of the option `format`, `encoder` its class."""

    KIND: ClassVar[str] = "encoder"
    CLASSES: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    encoder: str
    envelopes: frozenset[str]
    """The envelopes that the encoder writes. Any other is refused before a changefeed starts."""
    outputs: frozenset[str]
    """What the encoder writes: "messages", "files" or both."""
    decoder: str = ""
    """A `Decoder`. Without one, most promises cannot be tested, and written data cannot be read back."""
    compresses: bool = False
    """Whether the encoder compresses files itself, as `EncoderContext.compression` says."""
    scans_only: bool = False
    """Whether the format has no place for deletes and resolved marks. If so, it requires `initial_scan = "only"`, and
    the encoder raises TerminalError for a mark and EncodeError for a deleted row.
    """
    rekeys: bool = False
    """Whether the keys of messages are those of `Encoder.keyed`. The option `key_column` needs this."""
