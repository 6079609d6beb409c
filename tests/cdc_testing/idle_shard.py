"""A database as the first of two shards, for the conformance kit: all changes are in it, the other one is idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from cdc_conformance.plugin import SIMULATED
from cdc_conformance.simulated.writer import SimulatedWriter
from cdc_rangefeed_postgres.plugin import cdc_register_rangefeeds
from cdc_rangefeed_postgres.writer import PostgresWriter

from cdc_core import RangefeedContext, RangefeedRegistration, SourceWriter, SourceWriterContext
from cdc_core.plugins.classes import load_class
from cdc_core.shards.history import ShardedHistory
from cdc_core.shards.planner import ShardedPlanner
from cdc_core.shards.rangefeed import ShardedRangefeed
from cdc_core.shards.reader import ShardedReader

_ONE = {"simulated": SIMULATED, **{one.name: one for one in cdc_register_rangefeeds()}}


def other_shard(uri: str) -> str:
    """Return the URI of the idle shard beside the one at *uri*."""
    parts = urlsplit(uri)
    return parts._replace(path=f"{parts.path}_idle").geturl()


def two_shards(name: str) -> RangefeedRegistration:
    """Return the rangefeed *name* with the idle shard beside each database."""
    return replace(
        _ONE[name],
        rangefeed=f"{__name__}:TwoRangefeeds",
        planner=f"{__name__}:TwoPlanners",
        reader=f"{__name__}:TwoReaders",
        history=f"{__name__}:TwoHistories",
        writer=f"{__name__}:{'TwoSimulatedWriters' if name == 'simulated' else 'TwoPostgresWriters'}",
    )


def _shards(context: RangefeedContext, part: str) -> tuple[RangefeedContext, type[Any], list[str]]:
    name = "simulated" if context.uri.startswith("simulated:") else "postgres"
    one = load_class(getattr(_ONE[name], part), owner="the test")
    return context, one, [context.uri, other_shard(context.uri)]


class TwoRangefeeds(ShardedRangefeed):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(*_shards(context, "rangefeed"))


class TwoPlanners(ShardedPlanner):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(*_shards(context, "planner"), scans_only=False)


class TwoReaders(ShardedReader):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(*_shards(context, "reader"))


class TwoHistories(ShardedHistory):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(*_shards(context, "history"))


class _TwoWriters(SourceWriter):
    """Creates, alters and drops tables in both."""

    one: type[SourceWriter]

    def __init__(self, context: SourceWriterContext) -> None:
        super().__init__(context)
        self._other = self.one(SourceWriterContext(uri=other_shard(context.uri), options=context.options))

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

    def change_key(self, table: str, columns: Sequence[str]) -> bool:
        self._other.change_key(table, columns)
        return super().change_key(table, columns)

    def drop_column(self, table: str, column: str) -> None:
        super().drop_column(table, column)
        self._other.drop_column(table, column)

    def close(self) -> None:
        super().close()
        self._other.close()


class TwoPostgresWriters(_TwoWriters, PostgresWriter):
    one = PostgresWriter


class TwoSimulatedWriters(_TwoWriters, SimulatedWriter):
    one = SimulatedWriter
