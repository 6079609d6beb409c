"""A changefeed made ready to run: everything that its processes need to know, and nothing that they must look up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.cloudevents import CloudEvents
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.component import Component
from cdc_core.config.identity import kept_place, kept_places
from cdc_core.envelope import ENVELOPE_OPTIONS, Envelope
from cdc_core.envelope_shapes import SHAPES
from cdc_core.function_registration import FunctionRegistration
from cdc_core.locality import Locality
from cdc_core.masking import masked_uri, secret_forms, uri_secrets
from cdc_core.options import format_duration, place_values
from cdc_core.queries.selection import Selection
from cdc_core.queries.table_queries import TableQueries
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration
from cdc_core.schema import TableName
from cdc_core.sink_registration import SinkRegistration


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResolvedChangefeed:
    """One changefeed with its plugins resolved. Picklable; holds secrets, which `repr` masks.

    `resolve` makes it, `for_attempt` gives it its identity, and `cdc_core.config.parts` opens what it consists of.
    """

    name: str
    tables: tuple[str, ...]
    sources: tuple[str, ...]
    """URIs of the sources as written, parameters included: mostly one, otherwise shards with the same tables."""
    destination: str
    """URI of the sink without its parameters."""
    rangefeed: Component[RangefeedRegistration]
    encoder: Component[EncoderRegistration]
    sink: Component[SinkRegistration]
    options: ChangefeedOptions
    query: str | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    """Those that the query may call, as texts by their names."""
    installed_functions: tuple[FunctionRegistration, ...] = ()
    """The Python functions that it calls."""
    selections: tuple[Selection, ...] = ()
    """The sections of tables."""
    min_checkpoint_frequency_s: float = 0.0
    """Least time between two steps: the user's, otherwise the sink's."""
    spark: Mapping[str, str] = field(default_factory=dict)
    plain_secrets: frozenset[str] = frozenset()
    dead_letter: ResolvedChangefeed | None = None
    """The way to the dead letters: a changefeed of which only encoder and sink are used."""
    feed_id: str = ""
    epoch: int = 0
    state: str = ""
    """URL of the progress store."""
    table_names: tuple[TableName, ...] = ()
    parallelism: int = 1
    """How many slices can be read at the same time."""
    locality: Locality = field(default_factory=Locality)
    """Where it is coordinated; without tiers where that is unknown."""
    saved: Mapping[str, Any] | None = None
    """The token saved last before this run. Only the driver has it."""
    temporary: bool = False
    """Whether nothing of it may remain: see `RangefeedContext.temporary`."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """What the progress store keeps beside the identity (see `cdc_core.config.definition`). Holds no secret."""

    def rarer_marks(self) -> str | None:
        """Return why resolved timestamps are further apart than option `resolved` asks; None when they are not."""
        wanted, least = self.options.resolved, self.min_checkpoint_frequency_s
        if not wanted or wanted >= least:
            return None
        whose = " by default" if self.options.min_checkpoint_frequency is None else ""
        return (
            f"resolved timestamps are at least {format_duration(least)} apart, not {format_duration(wanted)} as"
            f" 'resolved' requests, because min_checkpoint_frequency is {format_duration(least)}{whose}; set"
            f" min_checkpoint_frequency = '{format_duration(wanted)}'"
        )

    def for_attempt(
        self,
        *,
        feed_id: str,
        epoch: int,
        state: str = "",
        table_names: Sequence[TableName] | None = None,
        parallelism: int | None = None,
    ) -> ResolvedChangefeed:
        """Return the same changefeed as attempt *epoch* of identity *feed_id*, with its progress at URL *state*."""
        letters = self.dead_letter
        return dataclasses.replace(
            self,
            feed_id=feed_id,
            epoch=epoch,
            state=state or self.state,
            table_names=self.table_names if table_names is None else tuple(table_names),
            parallelism=parallelism or self.parallelism,
            dead_letter=None if letters is None else letters.for_attempt(feed_id=feed_id, epoch=epoch),
            plain_secrets=self.plain_secrets | uri_secrets(state),
        )

    @property
    def output(self) -> str:
        """What the sink asks of the encoder, "messages" or "files"."""
        return self.sink.registration.output

    def envelope(self) -> Envelope:
        """Return what every message carries: what the user asked for and what the sink always switches on."""
        # A format of scans has columns and nothing else.
        forced = frozenset() if self.encoder.registration.scans_only else self.sink.registration.forced
        wanted = {name: name in forced or getattr(self.options, name) for name in ENVELOPE_OPTIONS}
        properties = tuple(sorted(set(self.options.enriched_properties)))
        return Envelope(name=self.options.envelope, enriched_properties=properties, **wanted)

    def events(self) -> CloudEvents | None:
        """Return how messages are events; None unless the envelope is `cloudevents`."""
        options = self.options
        if not SHAPES[options.envelope].events:
            return None
        source = options.cloudevents_source or f"/cdc/{self.name}"
        return CloudEvents(source=source, type_prefix=options.cloudevents_type_prefix, mode=options.cloudevents_mode)

    def queries(self) -> TableQueries:
        """Return what is selected of each table."""
        return TableQueries(
            query=self.query,
            functions=tuple(self.functions.items()),
            installed=self.installed_functions,
            selections=self.selections,
            diff=self.envelope().diff,
        )

    @property
    def mask_key(self) -> bytes:
        """The key of masks that hash; empty where there are none."""
        return (self.options.mask_key or "").encode()

    @property
    def routes(self) -> bool:
        """Whether the query gives each row its topic."""
        return self.queries().routes

    def secrets(self) -> frozenset[str]:
        """Return every secret in every form that it may take in a text, for `cdc_core.masking.mask`."""
        return secret_forms(self.plain_secrets)

    @property
    def is_sharded(self) -> bool:
        return len(self.sources) > 1

    @property
    def shown_source(self) -> str:
        """The URIs of the sources without secrets, for people."""
        return ", ".join(map(masked_uri, self.sources))

    @property
    def shown_destination(self) -> str:
        """The sink's URI without secrets, for people and for the progress store."""
        return masked_uri(self.destination, secret_path=self.sink.registration.secret_path)

    def definition(self) -> dict[str, Any]:
        """Return what the progress store keeps of this changefeed. Holds no secret. Raises: as `sink_place`.

        First what it is recognized by (see `cdc_core.config.identity`), then all that running it needs. Source and sink
        keep their references; `places` has digests of the places that they stand for.
        """
        sources, secret_path = [*map(masked_uri, self.sources)], self.sink.registration.secret_path
        return {
            **kept_places(self.stored.get("written", {}), sources, self.shown_destination, secret_path=secret_path),
            "tables": list(self.tables),
            **({} if self.query is None else {"query": self.query}),
            **({"functions": dict(self.functions)} if self.functions else {}),
            **({"selections": {each.table: each.to_json() for each in self.selections}} if self.selections else {}),
            "format": self.encoder.name,
            "place": kept_place(self.stored.get("written", {}), self.sink_place()),
            "cursor": self.options.cursor,
            "end_time": self.options.end_time,
            **({} if self.options.metrics_label is None else {"metrics_label": self.options.metrics_label}),
            **self.stored,
        }

    def sink_place(self) -> dict[str, str]:
        """Return the sink's options that say which place its URI means. Raises: PluginLoadError, OptionError."""
        return place_values(self.sink.parsed())

    def __repr__(self) -> str:
        return (
            f"ResolvedChangefeed(name={self.name!r}, source={self.shown_source!r}, tables={self.tables!r}, "
            f"destination={self.shown_destination!r}, rangefeed={self.rangefeed.name!r}, "
            f"encoder={self.encoder.name!r}, sink={self.sink.name!r}, feed_id={self.feed_id!r}, epoch={self.epoch})"
        )
