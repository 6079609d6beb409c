"""The simulated database as the first of two shards, for the conformance kit: the other one is idle."""

from __future__ import annotations

from urllib.parse import urlsplit

from cdc_conformance.plugin import cdc_register_rangefeeds
from cdc_conformance.simulated.planner import SimulatedPlanner
from cdc_conformance.simulated.rangefeed import SimulatedHistory, SimulatedRangefeed
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_conformance.simulated.writer import SimulatedWriter

from cdc_core import RangefeedContext, RangefeedRegistration, SourceWriterContext
from cdc_core.shards.history import ShardedHistory
from cdc_core.shards.planner import ShardedPlanner
from cdc_core.shards.rangefeed import ShardedRangefeed
from cdc_core.shards.reader import ShardedReader

__all__ = ["TwoHistories", "TwoPlanners", "TwoRangefeeds", "TwoReaders", "TwoWriters", "other_shard", "two_shards"]


def other_shard(uri: str) -> str:
    """Return the URI of the idle shard beside the one at *uri*."""
    parts = urlsplit(uri)
    return parts._replace(path=f"{parts.path}-idle").geturl()


def two_shards() -> RangefeedRegistration:
    (simulated,) = cdc_register_rangefeeds()
    values = simulated.to_json()
    for part, name in (("rangefeed", "Rangefeeds"), ("planner", "Planners"), ("reader", "Readers")):
        values[part] = f"{__name__}:Two{name}"
    values |= {"history": f"{__name__}:TwoHistories", "writer": f"{__name__}:TwoWriters"}
    return RangefeedRegistration.from_json(values)


def _sources(context: RangefeedContext) -> list[str]:
    return [context.uri, other_shard(context.uri)]


class TwoRangefeeds(ShardedRangefeed):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context, SimulatedRangefeed, _sources(context))


class TwoPlanners(ShardedPlanner):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context, SimulatedPlanner, _sources(context), scans_only=False)


class TwoReaders(ShardedReader):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context, SimulatedReader, _sources(context))


class TwoHistories(ShardedHistory):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context, SimulatedHistory, _sources(context))


class TwoWriters(SimulatedWriter):
    """Creates, alters and drops tables in both."""

    def __init__(self, context: SourceWriterContext) -> None:
        super().__init__(context)
        self._other = SimulatedWriter(SourceWriterContext(uri=other_shard(context.uri), options=context.options))

    def create_table(self, table: str) -> None:
        super().create_table(table)
        self._other.create_table(table)

    def drop_table(self, table: str) -> None:
        super().drop_table(table)
        self._other.drop_table(table)

    def add_column(self, table: str, column: str) -> None:
        super().add_column(table, column)
        self._other.add_column(table, column)

    def add_filled_column(self, table: str, column: str, value: str) -> bool:
        self._other.add_filled_column(table, column, value)
        return super().add_filled_column(table, column, value)

    def drop_column(self, table: str, column: str) -> None:
        super().drop_column(table, column)
        self._other.drop_column(table, column)

    def close(self) -> None:
        super().close()
        self._other.close()
