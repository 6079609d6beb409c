"""What a container of the image runs when Spark starts it as an executor in Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cdc_testing.spark_cluster import JAVA_OPTIONS, Master

pytestmark = pytest.mark.slow

ENTRYPOINT = Path(__file__).parents[2] / "deploy" / "container" / "entrypoint"
OPTIONS = (
    "-Dcdc.first=with blanks",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


DRIVER = """
import sys
from pyspark.sql import SparkSession

settings = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master(sys.argv[1]).config(map=settings).getOrCreate()
context = spark.sparkContext
print(context.getConf().get("spark.driver.port"), context.applicationId, flush=True)
print(context.parallelize(range(4), 2).map(lambda each: each * 2).collect(), flush=True)
spark.stop()
"""


def test_the_entrypoint_is_an_executor_for_spark(tmp_path: Path) -> None:
    """The driver is that of a standalone cluster without workers: drivers in Kubernetes speak the same protocol."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": JAVA_OPTIONS}
    with Master({}) as master, (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", DRIVER, master.url]
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        executor = None
        try:
            assert driver.stdout is not None
            port, application = driver.stdout.readline().split()
            command = [str(ENTRYPOINT), "executor"]
            executor = subprocess.Popen(command, env=variables(tmp_path, port, application), stdout=log, stderr=log)
            assert driver.communicate(timeout=300)[0] == "[0, 2, 4, 6]\n"
            assert executor.wait(300) == 0
        finally:
            for process in (driver, executor):
                if process is not None:
                    process.kill()
                    process.wait()


def variables(directory: Path, port: str, application: str) -> dict[str, str]:
    """Return the environment of the entrypoint: what Spark sets in Kubernetes, and a `tini` that is not process 1."""
    tini = directory / "tini"
    tini.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    tini.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": application,
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(OPTIONS)},
    }
