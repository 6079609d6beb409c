"""A changefeed made ready to run: everything that its processes need to know, and nothing that they must look up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.config.changefeed import ChangefeedOptions
from cdc_core.encoder import Encoder, EncoderContext, EnvelopeOptions
from cdc_core.masking import masked_uri, secret_forms, uri_secrets
from cdc_core.options import parse_options, place_values
from cdc_core.plugins.classes import load_class
from cdc_core.rangefeed import Rangefeed, RangefeedContext
from cdc_core.schema import TableName
from cdc_core.sink import Sink, SinkContext
from cdc_core.telemetry.stages import time_encoder

__all__ = ["Component", "Job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A plugin's component by its classes, with the options that the user gave it. Holds secrets; `repr` does not.

    `target` and `options` are "module:Class"; `values` are the options as written, still to be parsed.
    """

    kind: str
    name: str
    target: str
    options: str
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    install_hint: str = ""

    @property
    def owner(self) -> str:
        """How messages name this component."""
        return f"{self.kind} '{self.name}'"

    def load(self, base: type) -> type[Any]:
        """Return the component's class. Raises: PluginLoadError, ContractError."""
        return load_class(self.target, owner=self.owner, base=base, install_hint=self.install_hint)

    def load_options(self) -> type[Any]:
        """Return the class of its options. Raises: PluginLoadError."""
        return load_class(self.options, owner=self.owner, install_hint=self.install_hint)

    def parsed(self) -> Any:
        """Return the options instance. Raises: OptionError, PluginLoadError."""
        return parse_options(self.load_options(), self.values, owner=self.owner)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job:
    """One changefeed with its plugins resolved. Picklable, and JSON and back; holds secrets, which `repr` masks.

    Made by `cdc_core.config.resolve.resolve`, then given its identity by `with_run`. The `open_` methods may be called
    in any process, import the plugin's code there, and connect to nothing.
    """

    name: str
    tables: tuple[str, ...]
    source: str
    """URI of the source as written, parameters included."""
    destination: str
    """URI of the sink without its parameters."""
    rangefeed: Component
    encoder: Component
    sink: Component
    options: ChangefeedOptions
    output: str = "messages"
    """What the sink asks of the encoder, "messages" or "files"."""
    secret_path: bool = False
    """Whether nobody is to see the path of the sink's URI, and its user."""
    forced: frozenset[str] = frozenset()
    """Envelope options that the sink always switches on."""
    min_checkpoint_frequency_s: float = 0.0
    """Least time between two steps: the user's, else the sink's."""
    spark: Mapping[str, str] = field(default_factory=dict)
    plain_secrets: frozenset[str] = frozenset()
    dead_letter: Job | None = None
    """The way to the dead letters: a job of which only encoder and sink are used."""
    feed_id: str = ""
    epoch: int = 0
    state: str = ""
    """URL of the progress store."""
    table_names: tuple[TableName, ...] = ()

    def with_run(
        self, *, feed_id: str, epoch: int, state: str = "", table_names: Sequence[TableName] | None = None
    ) -> Job:
        """Return the same job as run *epoch* of changefeed *feed_id*, with its progress in the store at URL *state*."""
        return dataclasses.replace(
            self,
            feed_id=feed_id,
            epoch=epoch,
            state=state or self.state,
            table_names=self.table_names if table_names is None else tuple(table_names),
            dead_letter=None if self.dead_letter is None else self.dead_letter.with_run(feed_id=feed_id, epoch=epoch),
            plain_secrets=self.plain_secrets | uri_secrets(state),
        )

    def envelope(self) -> EnvelopeOptions:
        """Return what every message carries: what the user asked for and what the sink always switches on."""
        wanted = {
            option.name: option.name in self.forced or getattr(self.options, option.name)
            for option in dataclasses.fields(EnvelopeOptions)
            if option.name != "envelope"
        }
        return EnvelopeOptions(envelope=self.options.envelope, **wanted)

    def open_rangefeed(self, *, parallelism: int = 1) -> Rangefeed:
        """Return a new rangefeed. Raises: PluginLoadError, ContractError, OptionError."""
        cls = self.rangefeed.load(Rangefeed)
        envelope = self.envelope()
        rangefeed: Rangefeed = cls(
            RangefeedContext(
                changefeed=self.name,
                feed_id=self.feed_id,
                uri=self.source,
                tables=self.tables,
                options=self.rangefeed.parsed(),
                diff=envelope.diff,
                mvcc=envelope.mvcc_timestamp,
                initial_scan=self.options.initial_scan != "no",
                parallelism=parallelism,
            )
        )
        return rangefeed

    def encoder_context(self) -> EncoderContext:
        """Return what the encoder is built from, and its decoder. Raises: PluginLoadError, OptionError."""
        compresses = self.encoder.load(Encoder).compresses
        return EncoderContext(
            changefeed=self.name,
            envelope=self.envelope(),
            options=self.encoder.parsed(),
            output=self.output,
            compression=getattr(self.sink.parsed(), "compression", "none") if compresses else "none",
        )

    def sink_context(self) -> SinkContext:
        """Return what the sink is built from, and its reader. Raises: PluginLoadError, ContractError, OptionError."""
        return SinkContext(
            changefeed=self.name,
            epoch=self.epoch,
            uri=self.destination,
            options=self.sink.parsed(),
            encoder=time_encoder(self.open_encoder()),
            full_table_name=self.options.full_table_name,
            tables=self.table_names,
            feed_id=self.feed_id,
            format=self.encoder.name,
        )

    def open_encoder(self) -> Encoder:
        """Return a new encoder. Raises: PluginLoadError, ContractError, OptionError."""
        cls = self.encoder.load(Encoder)
        encoder: Encoder = cls(self.encoder_context())
        return encoder

    def open_sink(self) -> Sink:
        """Return a new sink with an encoder of its own. Raises: PluginLoadError, ContractError, OptionError."""
        cls = self.sink.load(Sink)
        sink: Sink = cls(self.sink_context())
        return sink

    def secrets(self) -> frozenset[str]:
        """Return every secret in every form that it may take in a text, for `cdc_core.masking.mask`."""
        return secret_forms(self.plain_secrets)

    @property
    def shown_destination(self) -> str:
        """The sink's URI without secrets, for people and for the progress store."""
        return masked_uri(self.destination, secret_path=self.secret_path)

    def definition(self) -> dict[str, Any]:
        """Return what the progress store remembers this changefeed by. Holds no secret. Raises: as `sink_place`."""
        return {
            "source": masked_uri(self.source),
            "tables": list(self.tables),
            "sink": self.shown_destination,
            "format": self.encoder.name,
            "place": self.sink_place(),
        }

    def sink_place(self) -> dict[str, str]:
        """Return the sink's options that say which place its URI means. Raises: PluginLoadError, OptionError."""
        return place_values(self.sink.parsed())

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON values, for `from_json`. Holds secrets."""
        return {
            **{name: getattr(self, name) for name in ("name", "source", "destination", "output")},
            **{name: getattr(self, name) for name in ("feed_id", "epoch", "state", "secret_path")},
            **{name: _component_json(getattr(self, name)) for name in ("rangefeed", "encoder", "sink")},
            "tables": list(self.tables),
            "options": dataclasses.asdict(self.options),
            "forced": sorted(self.forced),
            "min_checkpoint_frequency_s": self.min_checkpoint_frequency_s,
            "spark": dict(self.spark),
            "plain_secrets": sorted(self.plain_secrets),
            "dead_letter": None if self.dead_letter is None else self.dead_letter.to_json(),
            "table_names": [[name.database, name.schema, name.table] for name in self.table_names],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Job:
        fields = dict(value)
        for name in ("rangefeed", "encoder", "sink"):
            fields[name] = Component(**fields[name])
        for name in ("forced", "plain_secrets"):
            fields[name] = frozenset(fields[name])
        fields["options"] = ChangefeedOptions(**fields["options"])
        fields["tables"] = tuple(fields["tables"])
        fields["dead_letter"] = None if fields["dead_letter"] is None else Job.from_json(fields["dead_letter"])
        fields["table_names"] = tuple(TableName(*name) for name in fields["table_names"])
        return cls(**fields)

    def __repr__(self) -> str:
        return (
            f"Job(name={self.name!r}, source={masked_uri(self.source)!r}, tables={self.tables!r}, "
            f"destination={self.shown_destination!r}, rangefeed={self.rangefeed.name!r}, "
            f"encoder={self.encoder.name!r}, sink={self.sink.name!r}, feed_id={self.feed_id!r}, epoch={self.epoch})"
        )


def _component_json(component: Component) -> dict[str, Any]:
    return {**dataclasses.asdict(component), "values": dict(component.values)}
