"""The engine on a real Spark, in this process: one JVM for all tests, one session a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import Engine
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.scripted import Script
from pyspark.sql import SparkSession

from cdc_core.spark.query_planning import query_session


class SparkEngine(Engine):
    """Runs share a warm session."""

    def __init__(self, directory: Path, spark: KeptSpark) -> None:
        super().__init__(directory)
        self.spark = spark

    def run(self, *, own_spark: bool = False, **how: Any) -> int:
        """As `Engine.run`, with *own_spark* in a session of the run's own."""
        with ExitStack() as stack:
            if own_spark:
                self.spark.close()
            else:
                stack.enter_context(self.spark.lent())
            return super().run(**how)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def engine(tmp_path: Path, kept_spark: KeptSpark) -> SparkEngine:
    return SparkEngine(tmp_path, kept_spark)


@pytest.fixture(scope="module")
def make_engine(tmp_path_factory: pytest.TempPathFactory, kept_spark: KeptSpark) -> Callable[[], SparkEngine]:
    return lambda: SparkEngine(tmp_path_factory.mktemp("engine"), kept_spark)


@pytest.fixture
def session(kept_spark: KeptSpark) -> Iterator[SparkSession]:
    """A session for queries."""
    with kept_spark.lent():
        yield query_session(kept_spark.session())
