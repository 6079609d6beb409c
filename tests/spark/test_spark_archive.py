"""The archive of Spark's classes, which makes the tests quicker, and changes nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from cdc_testing import spark_archive
from cdc_testing.kept_spark import KeptSpark
from pyspark import SparkContext


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nobody set options of Spark's JVM. Returns where the archive would be."""
    monkeypatch.setattr(spark_archive, "_ALL", tmp_path)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    path = spark_archive.archive()
    assert path is not None
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files a process maps")
def test_a_jvm_that_is_given_the_archive_uses_it(kept_spark: KeptSpark) -> None:
    path = spark_archive.archive()
    if path is None or str(path) not in os.environ.get("SPARK_SUBMIT_OPTS", ""):
        pytest.skip("there was no archive when the tests began: make spark-archive")
    kept_spark.session()
    assert SparkContext._gateway is not None
    assert str(path.resolve()) in Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()


def test_without_an_archive_the_jvm_starts_as_ever(options: Path) -> None:
    spark_archive.use()
    assert "SPARK_SUBMIT_OPTS" not in os.environ


def test_what_the_user_set_for_the_jvm_wins(options: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options.parent.mkdir()
    options.touch()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    spark_archive.use()
    spark_archive.use()  # a process that a test starts
    assert os.environ["SPARK_SUBMIT_OPTS"].endswith("spark.jsa -Xlog:cds*=off -Xmx1g")
    assert os.environ["SPARK_SUBMIT_OPTS"].count("SharedArchiveFile") == 1


def test_a_failure_to_make_it_is_told_and_is_no_failure(
    options: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cdc_core.spark.runner.run", lambda *_, **__: 1 / 0)
    monkeypatch.setenv("PYTHONPATH", "")
    assert spark_archive.main() == 0
    assert capsys.readouterr().err == "Spark's classes are not archived: ZeroDivisionError('division by zero')\n"
    assert not options.exists()
