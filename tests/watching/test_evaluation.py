"""What evaluates the queries of several watches of one process."""

from __future__ import annotations

from contextlib import closing

import pytest
from pyspark import SparkContext

from cdc_core import Changefeed, ConfigError
from cdc_core.config.resolve import resolve_without_sink
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.host import PluginHost
from cdc_core.schema import Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.spark.evaluation import SparkEvaluation
from cdc_core.spark.host import SparkHost

TABLE = TableSchema(
    name=TableName(database="shop", schema="public", table="t"),
    version=1,
    columns=(Column(name="id", type=ColumnType(kind=Kind.INT, source="integer", bits=32)),),
    primary_key=("id",),
)


@pytest.fixture
def feed() -> ResolvedChangefeed:
    changefeed = Changefeed(name="w", source="postgresql://a@b/shop", query="SELECT id + 1 AS n FROM public.t")
    return resolve_without_sink(changefeed, PluginHost.load())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ends and what is held, without Spark."""
    found: list[str] = []
    monkeypatch.setattr("cdc_core.spark.host.open_session", lambda *_, **__: pytest.fail("Spark must not start"))
    end = SparkHost.release

    def release(host: SparkHost, user: str) -> None:
        found.append(user)
        end(host, user)

    monkeypatch.setattr(SparkHost, "release", release)
    return found


def test_a_spark_session_of_the_process_is_refused_and_not_ended(
    feed: ResolvedChangefeed, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with (
        closing(SparkEvaluation(feed)) as evaluation,
        pytest.raises(ConfigError, match="this process already has a Spark session"),
    ):
        evaluation.delivered([TABLE])
    assert len(calls) == 1


def test_evaluations_share_a_host_that_each_holds_by_itself(feed: ResolvedChangefeed, calls: list[str]) -> None:
    with closing(SparkEvaluation(feed)) as first, closing(SparkEvaluation(feed)) as second:
        assert first._host is second._host
        log = first._host._log_path.parent
        second.close()
        assert log.exists()
    assert len(set(calls)) == 2
    assert not log.exists()
