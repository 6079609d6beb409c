"""What of pyspark has no public way: that each use works, that nobody else uses it, and what would replace it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyspark.daemon
import pyspark.find_spark_home
import pytest
from cdc_testing.imports import ROOT
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import eventually
from pyspark import SparkContext, StatusTracker
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, IntegerType, LongType

from cdc_core.spark import private_api, python_forkserver
from cdc_core.spark.preload import preload
from cdc_core.spark.session import end_jvm, is_alive

PRIVATE = re.compile(
    r"\bpy4j\.|\b(import|from) py4j|\bpyspark\.daemon import|\._j[a-z]+\b|\b(SparkContext|SparkSession)\._"
)


def test_no_other_module_uses_what_is_private() -> None:
    """The other packages do not import pyspark at all: see tests/test_import_boundaries.py."""
    sources = (ROOT / "cdc_core" / "spark").glob("*.py")
    assert [path.name for path in sources if PRIVATE.search(path.read_text())] == ["private_api.py"]


@pytest.mark.parametrize(
    ("owner", "words", "known"),
    [
        pytest.param(pyspark.find_spark_home, "spark_home", [], id="spark_home"),
        pytest.param(SparkContext, "jvm|gateway", [], id="connect, jvm_process, disconnect"),
        pytest.param(SparkContext, "active|get_?or|current", ["getOrCreate"], id="active_context"),
        pytest.param(SparkContext, "accumulator", ["accumulator"], id="silence_accumulators"),
        pytest.param(SparkContext, "stop", ["stop"], id="is_closed, is_stopped, mark_closed"),
        pytest.param(SparkSession, "stop|clos", ["stop"], id="is_closed, is_stopped of a session"),
        pytest.param(SparkSession, "active", ["active", "getActiveSession"], id="make_active"),
        pytest.param(StatusTracker, "job", ["getActiveJobsIds", "getJobIdsForGroup", "getJobInfo"], id="count_jobs"),
        pytest.param(pyspark.SparkExecutorInfo, "id$|name", [], id="executor_ids"),
        pytest.param(SparkContext, "secret|credential", [], id="forget_secret"),
        pytest.param(pyspark.daemon, "load|hook|main", [], id="run_daemon"),
        pytest.param(SparkContext, "worker|monitor|thread", [], id="end_monitors_of_planners"),
        pytest.param(DataFrame, "plan$|analy|optimi", [], id="analyzed, optimized, generate_code, written_out"),
        pytest.param(f, "^(try|attempt|if_error|is_error)$", [], id="tried, tried_value"),
        pytest.param(DataType, "cast|accept|fits", [], id="can_up_cast"),
        pytest.param(SparkSession, "expression|catalyst", [], id="column_of, expression_of, with_children, literal"),
    ],
)
def test_pyspark_has_no_public_way(owner: object, words: str, known: list[str]) -> None:
    """One that is new may replace the functions of `private_api` that the case names."""
    public = [name for name in dir(owner) if not name.startswith("_") and re.search(words, name, re.IGNORECASE)]
    assert public == known


@pytest.fixture
def session(kept_spark: KeptSpark) -> SparkSession:
    return kept_spark.session()


@pytest.fixture
def rows(session: SparkSession) -> DataFrame:
    return session.createDataFrame([(1, "2026-01-31"), (0, "never")], "n int, day string")


def test_only_the_monitors_of_planners_end(session: SparkSession, tmp_path: Path) -> None:
    """When Spark ends them itself, `end_monitors_of_planners` can go."""
    private_api.make_active(session)
    for name in ("first", "second"):
        preload(session, tmp_path / name, tasks=1, stopped=lambda: False)
        assert private_api.end_monitors_of_planners() > 0
        eventually("the monitors to end", lambda: not private_api.end_monitors_of_planners())
    jvm: Any = session._jvm
    names = [str(thread.getName()) for thread in jvm.Thread.getAllStackTraces().keySet()]
    assert any(name.startswith("Idle Worker Monitor") for name in names), "that of the tasks stays"


def test_the_spark_of_pyspark_has_what_starts_it() -> None:
    assert Path(private_api.spark_home(), "bin", "spark-submit").exists()


def test_a_jvm_is_connected_until_it_is_forgotten(kept_spark: KeptSpark) -> None:
    session = kept_spark.session()
    process = private_api.jvm_process()
    assert private_api.is_connected()
    assert process is not None
    assert process.poll() is None
    assert private_api.active_context() is session.sparkContext
    assert not private_api.is_closed(session)
    assert not private_api.is_stopped(session)
    end_jvm(session)
    assert private_api.is_closed(session)
    assert not is_alive(session)
    assert not private_api.is_connected()
    assert private_api.jvm_process() is None
    assert private_api.active_context() is None
    assert process.poll() is not None
    private_api.disconnect()  # again
    assert kept_spark.session().range(2).count() == 2, "pyspark takes another one"


def test_a_jvm_that_is_forgotten_closes_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be using it: they get the error of a JVM that died, not one of None."""
    context = Mock(_accumulatorServer=None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    for owner, names in (
        (SparkContext, ("_gateway", "_jvm")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, None)
    private_api.disconnect()
    session = Mock(sparkContext=context)
    assert not private_api.is_closed(session)
    private_api.mark_closed(session)
    assert private_api.is_closed(session)


def test_a_server_of_accumulators_without_its_jvm_prints_nothing(
    session: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    server: Any = session.sparkContext._accumulatorServer
    private_api.silence_accumulators(session.sparkContext)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(server.server_address)
        client.sendall(b"no update")
    server.handle_error(None, None)
    assert capfd.readouterr() == ("", "")


def test_another_session_is_active_in_one_thread_alone(session: SparkSession) -> None:
    own, seen = session.newSession(), []
    java = SparkSession._get_j_spark_session_class(session._jvm)

    def use() -> None:
        private_api.make_active(own)
        seen.append(java.getActiveSession().get().equals(own._jsparkSession))

    private_api.make_active(session)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    seen.append(java.getActiveSession().get().equals(session._jsparkSession))
    assert seen == [True, True]


def test_jobs_are_counted(session: SparkSession) -> None:
    before = private_api.count_jobs(session.sparkContext)
    session.sparkContext.parallelize([1], 1).count()
    assert private_api.count_jobs(session.sparkContext) == before + 1


def test_the_only_executor_of_a_local_session_is_its_driver(session: SparkSession) -> None:
    assert private_api.executor_ids(session) == set()
    assert session.sparkContext.statusTracker().getExecutorInfos() != []


def test_the_secret_of_an_application_is_forgotten(session: SparkSession) -> None:
    hadoop = session._jvm.org.apache.hadoop
    name = hadoop.io.Text("sparkCookie")

    def kept() -> object:
        return hadoop.security.UserGroupInformation.getCurrentUser().getCredentials().getSecretKey(name)

    assert kept() is not None
    private_api.forget_secret()
    assert kept() is None


def test_what_spark_starts_are_modules_of_its_python() -> None:
    """`python_forkserver` has loaded them before, and names the processes."""
    for name in (*python_forkserver.NAMES, *python_forkserver._LOADED):
        assert find_spec(name) is not None


def test_the_daemon_tells_its_port_and_ends_with_its_standard_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cdc_core.spark.daemon", "pyspark.worker"], input=b"", capture_output=True, check=False
    )
    assert done.stderr == b""
    assert 0 < int.from_bytes(done.stdout, "big") < 2**16


def test_plans_have_types_before_and_constants_after_they_are_optimized(rows: DataFrame) -> None:
    selected = rows.select(f.expr("to_date(day)").alias("value"), f.expr("1 + 1").alias("two"))
    plan = private_api.analyzed(selected)
    assert [each.dataType().typeName() for each in private_api.items(plan.expressions())] == ["date", "integer"]
    [short, _] = private_api.items(plan.expressions())
    [long, _] = private_api.items(private_api.written_out(plan).expressions())
    assert (short.child().nodeName(), long.child().nodeName()) == ("to_date", "Cast")
    assert "2 AS two" in private_api.optimized(selected).toString()


def test_patterns_are_read_when_code_is_generated(rows: DataFrame) -> None:
    private_api.generate_code(rows.select(f.expr("date_format(day, 'yyyy')").alias("value")))
    with pytest.raises(PySparkException, match="YYYY"):
        private_api.generate_code(rows.select(f.expr("date_format(day, 'YYYY')").alias("value")))


def test_constants_are_read_as_rows_read_them(rows: DataFrame) -> None:
    found = [private_api.pattern_refusal(pattern) for pattern in ("(a)", "(a")]
    assert found == ["", "Unclosed group"]
    assert [private_api.is_time_zone(name) for name in ("Europe/Berlin", "+02:00", "Mars")] == [True, True, False]


def test_expressions_become_columns_and_back_over_other_operands(rows: DataFrame) -> None:
    [named] = private_api.items(private_api.analyzed(rows.select((f.col("n") + 1).alias("value"))).expressions())
    total = named.child()
    n, one = private_api.items(total.children())
    ten = private_api.expression_of(private_api.literal(10, one.dataType()))
    more = private_api.column_of(private_api.with_children(total, [n, ten]))
    assert [row[0] for row in rows.select(more.alias("value")).collect()] == [11, 10]


def test_an_expression_that_fails_gives_null(rows: DataFrame) -> None:
    rows.sparkSession.conf.set("spark.sql.ansi.enabled", "true")
    found = rows.select(private_api.tried(f.lit(6) / f.col("n")).alias("tried")).collect()
    assert [row.tried and row.tried.value for row in found] == [6.0, None]
    found = rows.select(private_api.tried_value(f.lit(6) / f.col("n")).alias("value")).collect()
    assert [row.value for row in found] == [6.0, None]


@pytest.mark.parametrize(
    ("given", "wanted", "fits"), [(IntegerType(), LongType(), True), (LongType(), IntegerType(), False)]
)
def test_a_narrow_type_fits_into_a_wide_one(
    given: DataType, wanted: DataType, fits: bool, session: SparkSession
) -> None:
    assert private_api.can_up_cast(session, given, wanted) == fits
