"""A Spark cluster for the tests here, and what they run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster, require_namespaces

ROWS = 200


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[SparkCluster]:
    """Skips a test where mount namespaces are not permitted, as in most containers without privileges."""
    try:
        require_namespaces()
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def session_spark(session_cluster: SparkCluster) -> Iterator[KeptSpark]:
    up = session_cluster.master.url.removeprefix("spark://")
    master = {"master": f"spark://127.0.0.1:9,{up}", "spark.executor.instances": "2"}
    spark = KeptSpark({**session_cluster.settings, **master})
    yield spark
    spark.close()


@pytest.fixture
def cluster(session_cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> SparkCluster:
    """Two workers with separate disks."""
    monkeypatch.setenv("SPARK_HOME", str(session_cluster.home))
    return session_cluster


@pytest.fixture
def spark(cluster: SparkCluster, session_spark: KeptSpark) -> KeptSpark:
    """A session with an executor on each worker. It knows of two masters, of which one is down."""
    return session_spark


@pytest.fixture
def free_cluster(cluster: SparkCluster, session_spark: KeptSpark) -> SparkCluster:
    """The cluster without any application."""
    session_spark.close()
    cluster.await_free()
    return cluster


@pytest.fixture
def make_db() -> Callable[[Path], SimulatedDatabase]:
    """Makes a database in a directory, with a table of ROWS rows."""

    def make(directory: Path) -> SimulatedDatabase:
        database = SimulatedDatabase.create(directory, seed=5)
        database.create_table("t")
        for id_ in range(ROWS):
            database.put("t", id=id_, n=id_)
        return database

    return make


@pytest.fixture
def db(cluster: SparkCluster, tmp_path: Path, make_db: Callable[[Path], SimulatedDatabase]) -> SimulatedDatabase:
    """A database whose files all hosts see."""
    return make_db(cluster.shared / tmp_path.name)


@pytest.fixture
def out(cluster: SparkCluster, tmp_path: Path) -> Path:
    """A directory that all hosts see."""
    return cluster.shared / f"{tmp_path.name}.out"


@pytest.fixture
def feed(spark: KeptSpark, tmp_path: Path) -> Callable[..., Feed]:
    """Makes a changefeed from a database to a directory, in many slices, for the session on the cluster."""

    def make(db: SimulatedDatabase, out: Path, *, directory: Path = tmp_path, **options: object) -> Feed:
        given = {"scan_chunk_rows": 10, **options}
        return Feed(directory, db.uri, ["t"], options=given, spark=spark.settings, sink=f"file://{out}")

    return make
