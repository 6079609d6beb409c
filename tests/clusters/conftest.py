"""A Spark cluster for the tests here, and what they run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster, require_namespaces

ROWS = 200


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips a test where mount namespaces are not permitted, as in most containers without privileges."""
    try:
        require_namespaces()
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def module_cluster(namespaces: None) -> Iterator[SparkCluster]:
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: SparkCluster) -> SparkCluster:
    """Two workers with separate disks, free for an application."""
    module_cluster.await_free()
    return module_cluster


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
def feed(cluster: SparkCluster, tmp_path: Path) -> Iterator[Callable[..., Feed]]:
    """Makes a changefeed from a database to a directory on the cluster, in many slices."""
    with ExitStack() as stack:

        def make(db: SimulatedDatabase, out: Path, *, spark: dict[str, str] | None = None, **options: object) -> Feed:
            settings = {**cluster.settings, **(spark or {})}
            given = {"scan_chunk_rows": 10, **options}
            return stack.enter_context(
                Feed(tmp_path, db.uri, ["t"], options=given, spark=settings, sink=f"file://{out}")
            )

        yield make
