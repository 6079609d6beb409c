"""The parts of a changefeed: its plugins' classes loaded, and opened with all that they are told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import closing
from types import MappingProxyType

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.destination import Destination
from cdc_core.encoder import Encoder
from cdc_core.encoder_context import EncoderContext
from cdc_core.enriched import SourceFacts
from cdc_core.locality import Locality
from cdc_core.placement import PlacementRules
from cdc_core.queries.query import MVCC_COLUMN
from cdc_core.rangefeed import Rangefeed
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.resolved_sink import ResolvedSink
from cdc_core.restriction import unrestricted
from cdc_core.schema_change import SchemaChangeRules
from cdc_core.shards.history import ShardedHistory
from cdc_core.shards.planner import ShardedPlanner
from cdc_core.shards.rangefeed import ShardedRangefeed
from cdc_core.shards.reader import ShardedReader
from cdc_core.sink import Sink
from cdc_core.sink_context import SinkContext
from cdc_core.slice_reader import SliceReader
from cdc_core.source_history import SourceHistory
from cdc_core.step_planner import StepPlanner
from cdc_core.telemetry.measuring import TimedEncoder
from cdc_core.uris import place_of


class Parts:
    """Opens the parts of *feed*, in any process. Each call imports the plugin's code there and connects to nothing.

    Raises, all of them: PluginLoadError, ContractError, OptionError.
    """

    def __init__(self, feed: ResolvedChangefeed) -> None:
        self._feed = feed

    def rangefeed_context(self) -> RangefeedContext:
        """Return what every part of the rangefeed is built from."""
        envelope, queries = self._feed.envelope(), self._feed.queries()
        return RangefeedContext(
            changefeed=self._feed.name,
            feed_id=self._feed.feed_id,
            uri=self._feed.sources[0],
            tables=self._feed.tables,
            options=self._feed.rangefeed.parsed(),
            diff=envelope.diff or queries.refers_to("previous column", "previous row"),
            mvcc=envelope.mvcc_timestamp or queries.refers_to("column", name=MVCC_COLUMN),
            initial_scan=self._feed.options.initial_scan != "no",
            cursor=self._feed.options.cursor,
            schema_changes=SchemaChangeRules(
                events=self._feed.options.schema_change_events, policy=self._feed.options.schema_change_policy
            ),
            placement=PlacementRules(
                strategy=self._feed.options.placement or "leaseholder",
                within=Locality.parse(self._feed.options.execution_locality or ""),
            ),
            parallelism=self._feed.parallelism,
            locality=self._feed.locality,
            saved=None if self._feed.saved is None else dict(self._feed.saved),
            temporary=self._feed.temporary,
            restriction=queries.restriction_of if queries.exist else unrestricted,
        )

    def open_rangefeed(self, *, initial_scans: Mapping[str, bool] = MappingProxyType({})) -> Rangefeed:
        part: type[Rangefeed] = self._feed.rangefeed.load("rangefeed", Rangefeed)
        context = dataclasses.replace(self.rangefeed_context(), initial_scans=dict(initial_scans))
        return ShardedRangefeed(context, part, self._feed.sources) if self._feed.is_sharded else part(context)

    def open_planner(self) -> StepPlanner:
        part: type[StepPlanner] = self._feed.rangefeed.load("planner", StepPlanner)
        if not self._feed.is_sharded:
            return part(self.rangefeed_context())
        scans_only, end = self._feed.options.initial_scan == "only", self._feed.options.end
        return ShardedPlanner(self.rangefeed_context(), part, self._feed.sources, scans_only=scans_only, end=end)

    def open_reader(self) -> SliceReader:
        part: type[SliceReader] = self._feed.rangefeed.load("reader", SliceReader)
        context = self.rangefeed_context()
        return ShardedReader(context, part, self._feed.sources) if self._feed.is_sharded else part(context)

    def open_history(self) -> SourceHistory:
        part: type[SourceHistory] = self._feed.rangefeed.load("history", SourceHistory)
        context = self.rangefeed_context()
        return ShardedHistory(context, part, self._feed.sources) if self._feed.is_sharded else part(context)

    def encoder_context(self) -> EncoderContext:
        """Return what the encoder is built from, and its decoder."""
        return EncoderContext(
            changefeed=self._feed.name,
            envelope=self._feed.envelope(),
            options=self._feed.encoder.parsed(),
            output=self._feed.output,
            compression=self._compression() if self._feed.encoder.registration.compresses else "none",
            key_column=self._feed.options.key_column,
            events=self._feed.events(),
            source=SourceFacts(
                changefeed_sink=self._feed.sink.name,
                job_id=self._feed.name,
                origin=self._feed.rangefeed.registration.schemes[0],
                source_node_locality=str(self._feed.locality),
            ),
        )

    def sink_context(self) -> SinkContext:
        """Return what the parts of the sink are built from, and its reader."""
        return SinkContext(
            changefeed=self._feed.name,
            epoch=self._feed.epoch,
            uri=self._feed.destination,
            options=self._feed.sink.parsed(),
            encoder=TimedEncoder(self.open_encoder()),
            full_table_name=self._feed.options.full_table_name,
            topic=self._feed.options.topic,
            routed=self._feed.routes,
            reserved_topics=self._topics_of_dead_letters() if self._feed.routes else frozenset(),
            tables=self._feed.table_names,
            feed_id=self._feed.feed_id,
            format=self._feed.encoder.name,
            compression="none" if self._feed.encoder.registration.compresses else self._compression(),
        )

    def open_encoder(self) -> Encoder:
        opened: Encoder = self._feed.encoder.load("encoder", Encoder)(self.encoder_context())
        return opened

    def open_sink(self) -> Sink:
        opened: Sink = self._feed.sink.load("sink", Sink)(self.sink_context())
        return opened

    def open_resolved_sink(self) -> ResolvedSink:
        opened: ResolvedSink = self._feed.sink.load("resolved_sink", ResolvedSink)(self.sink_context())
        return opened

    def open_destination(self) -> Destination:
        opened: Destination = self._feed.sink.load("destination", Destination)(self.sink_context())
        return opened

    def _topics_of_dead_letters(self) -> frozenset[str]:
        """Return the topics of the dead letters, if they are at the destination of the rows."""
        feed, letters = self._feed, self._feed.dead_letter
        if letters is None or letters.sink.name != feed.sink.name or letters.sink_place() != feed.sink_place():
            return frozenset()
        if place_of(letters.destination) != place_of(feed.destination):
            return frozenset()
        with closing(Parts(letters).open_destination()) as destination:
            return frozenset(map(destination.topic, letters.table_names))

    def _compression(self) -> str:
        """Return what the sink's option says that files are compressed with."""
        name = self._feed.sink.registration.compression_option
        return str(getattr(self._feed.sink.parsed(), name)) if name else "none"
