"""The Spark session of a run: its settings, and the JVM's output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_core.errors import ConfigError
from cdc_core.spark.log_file import keep_newest, output_to
from cdc_core.spark.source import RangefeedSource
from cdc_core.spark.writer import ChangefeedSink

__all__ = ["DEFAULT_MASTER", "close_session", "end_jvm", "is_alive", "is_local", "open_session", "require_java"]

DEFAULT_MASTER = "local[*,4]"
"""All cores, and four attempts for each task: with `local[*]` a task whose worker died gets no second one."""

_JAVA_AT_LEAST = 17
_JVM_END_S = 10.0
# The JVM only passes batches on: the second compiler costs a third of the start time and gains nothing afterwards.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    # Row batches are packed into single rows; the JVM must pass each on as it is, and hold few of them.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    # Spark's own offset and commit logs are scratch of one run. The default manager forks processes on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.pollingDelay": "25ms",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.adaptive.enabled": "false",
    # How much finished work Spark remembers for its web page; the defaults are a thousand of each.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


def _local_settings(scratch: Path) -> dict[str, str]:
    """Return the settings of a run on one host, whose temporary files are in *scratch*."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} "-Djava.io.tmpdir={scratch}"',
    }


def require_java() -> None:
    """Raises: ConfigError when there is no Java that Spark can run on."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else shutil.which("java")
    remedy = f"install Java {_JAVA_AT_LEAST} or newer (Debian: apt-get install default-jre-headless)"
    if java is None:
        raise ConfigError(f"Spark needs Java, and there is none on the PATH; {remedy}")
    try:
        shown = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise ConfigError(f"Spark needs Java, and '{java}' does not run; {remedy}") from None
    found = re.search(r'version "(\d+)', shown)
    if found is None or int(found.group(1)) < _JAVA_AT_LEAST:
        first = shown.splitlines()[0] if shown else "an unknown version"
        raise ConfigError(f"Spark needs Java {_JAVA_AT_LEAST} or newer, and '{java}' is {first}; {remedy}")


def open_session(name: str, spark: Mapping[str, str], *, log_path: Path) -> SparkSession:
    """Return the session of changefeed *name*, with its *spark* settings over ours.

    The output of the JVM and the Python workers goes to *log_path*, and their temporary files into a directory beside
    it, which is emptied first.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {key: value for key, value in spark.items() if key != "master"}
    master = spark.get("master", DEFAULT_MASTER)
    builder = SparkSession.builder.appName(f"cdc {name}").master(master)
    local = _local_settings(_emptied(log_path.with_suffix(".tmp"))) if is_local(spark) else {}
    for key, value in {**_SETTINGS, **local, **settings}.items():
        builder = builder.config(key, value)
    home = log_path.parent / "spark-home" if is_local(spark) and "SPARK_HOME" not in os.environ else None
    keep_newest(log_path)
    with output_to(log_path), _spark_home(home):
        session = builder.getOrCreate()
    # Pyspark would print a traceback on standard error when the JVM dies; the run reports it in a sentence.
    session.sparkContext._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign]
    session.dataSource.register(RangefeedSource)
    session.dataSource.register(ChangefeedSink)
    return session


def _emptied(scratch: Path) -> Path:
    """Return the directory *scratch*, without files of an earlier JVM. A running JVM keeps its own."""
    if SparkContext._gateway is None:
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


@contextmanager
def _spark_home(directory: Path | None) -> Iterator[None]:
    """Give a JVM that starts inside the block *directory* as a Spark home without Spark's own copy of pyspark.

    Workers would import pyspark from that copy, a zip file without compiled modules: half a second of processor time
    for each of a dozen processes. Without it they use the installed package.
    """
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    installed = Path(pyspark.__file__).parent
    for name in ("bin", "jars"):
        link = directory / name
        if not link.is_symlink() or link.readlink() != installed / name:
            link.unlink(missing_ok=True)
            link.symlink_to(installed / name)
    os.environ["SPARK_HOME"] = str(directory)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]  # a later run in this process has a state directory of its own


def is_local(spark: Mapping[str, str]) -> bool:
    """Return whether with the settings *spark* every task runs on the driver's host."""
    return spark.get("master", DEFAULT_MASTER).startswith("local")


def is_alive(session: SparkSession) -> bool:
    """Return whether *session* can run queries: its JVM is there and its context was not stopped."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


def close_session(session: SparkSession) -> None:
    """Stop *session* so that `open_session` can start another one; in a new JVM when this one does not answer."""
    if session.sparkContext._jsc is None:  # closed already
        return
    if is_alive(session):
        with suppress(Py4JError, OSError):
            session.stop()
            return
    _forget_jvm(session, grace_s=0.0)


def end_jvm(session: SparkSession) -> None:
    """Stop *session* and release the memory that Spark holds. `open_session` can start another one."""
    close_session(session)
    _forget_jvm(session, grace_s=_JVM_END_S)


def _forget_jvm(session: SparkSession, *, grace_s: float) -> None:
    """End the JVM, or clean up after a dead one. Pyspark has no public way to start a new one."""
    gateway, server = SparkContext._gateway, getattr(session.sparkContext, "_accumulatorServer", None)
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if server is not None:
        server.shutdown()
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process: subprocess.Popen[bytes] | None = gateway.proc
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()  # a healthy JVM ends now, and cleans up
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
            process.kill()
            process.wait()


def _say_nothing(request: object, client_address: object) -> None:
    """For a server's `handle_error`."""
