"""What plugin hooks return: small values that name a component without loading it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EncoderRegistration", "RangefeedRegistration", "Registration", "SinkRegistration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A component by name.

    `target` and `options` are "module:Class" of the component and of its options class (see `cdc_core.options`); both
    stay unloaded until the component is used. `summary` is one line for listings; `install_hint` says what to install
    when loading fails, such as `pip install cdc-sink-kafka[aws]`.
    """

    name: str
    target: str
    options: str
    summary: str
    install_hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangefeedRegistration(Registration):
    """A source. `schemes` are the URI schemes that select it.

    `writer` is "module:Class" of its `SourceWriter`, through which the conformance kit changes what it reads.
    """

    schemes: tuple[str, ...]
    writer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRegistration(Registration):
    """An encoder; `name` is what the option `format` says.

    `envelopes` are those it can write; `outputs` is the part of {"messages", "files"} that it can produce. `decoder` is
    "module:Class" of its `Decoder`, with which the conformance kit and audits read what it wrote. `scans_only` marks a
    format that has no place for deletes and resolved marks: it is refused unless initial_scan = 'only'.
    """

    envelopes: frozenset[str]
    outputs: frozenset[str]
    decoder: str = ""
    scans_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRegistration(Registration):
    """A destination. `schemes` are the URI schemes that select it.

    `output` is what it asks of the encoder, "messages" or "files". `min_checkpoint_frequency_s` is the least time
    between two steps unless the user says otherwise: 0 for messages, more where a step makes a file. `forced` names
    envelope options that the sink always switches on, such as key_in_value where there is no other place for the key.
    `envelopes` are those whose messages it can take, all when None: a file has no place for a tombstone. `reader` is
    "module:Class" of its `SinkReader`, with which the conformance kit and audits see what a consumer sees. `history` is
    "module:Class" of its `StoredHistory`, with which `ChangeReader` reads every row exactly once. `secret_path`:
    whoever knows the path of the URI may use the place, as is usual with webhooks; so nothing shows path or user.
    """

    schemes: tuple[str, ...]
    output: str
    min_checkpoint_frequency_s: float = 0.0
    forced: frozenset[str] = frozenset()
    envelopes: frozenset[str] | None = None
    reader: str = ""
    history: str = ""
    secret_path: bool = False
