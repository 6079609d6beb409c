"""What is delivered of the rows of a temporary run: whole rows, or what a query gives for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.temporary_run import Evaluation, WholeRows
from cdc_core.plugins.classes import needing


@contextmanager
def evaluation_of(feed: ResolvedChangefeed) -> Iterator[Evaluation]:
    """Yield the evaluation of *feed*. Spark runs during the block if it evaluates something. It is not loaded for whole
    rows.

    Raises: ConfigError when Spark is needed and not installed.
    """
    if not feed.queries().exist:
        yield WholeRows()
        return
    with needing("pyspark", "py4j", otherwise="evaluating a query needs Spark: pip install 'cdc-core[spark]'"):
        from cdc_core.spark.evaluation import SparkEvaluation
    evaluation = SparkEvaluation(feed)
    try:
        yield evaluation
    finally:
        evaluation.close()
