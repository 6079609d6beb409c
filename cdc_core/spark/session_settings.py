"""The settings of a session that are ours, those of its JVM too; a user's own have precedence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cdc_core.spark.class_archive import ClassArchive
from cdc_core.spark.encryption import encryption_settings
from cdc_core.spark.host_limits import host_cores

DEFAULT_MASTER = "local[*,4]"
"""All cores, and four attempts for each task: with `local[*]` a task whose worker died gets no second one."""
TMPDIR_OPTION = '"-Djava.io.tmpdir={}"'
"""Java's option for its temporary files, with their directory to fill in."""
# Loading Spark's classes must not make the JVM collect the whole heap twice, as it does beyond 21 MB of metadata.
_MEMORY_OPTIONS = "-XX:+UseSerialGC -XX:MetaspaceSize=128m"
# Without queries it only passes batches on: the second compiler costs a third of the start time and gains nothing, and
# the first one need not compile what a start calls a few hundred times.
_JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:Tier3InvocationThreshold=1000 -XX:Tier3MinInvocationThreshold=500"
    f" -XX:Tier3CompileThreshold=6000 {_MEMORY_OPTIONS}"
)
# With them it works on each row, where the second compiler saves half of the time. It leaves the start to the first.
_QUERY_JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
    f" -XX:Tier4BackEdgeThreshold=400000 {_MEMORY_OPTIONS}"
)
SETTINGS = {
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
    # Exchanged rows that are lost with an executor are read again by a new attempt, which repeats the step's plan: a
    # stage that Spark repeats would count its tasks' attempts from 0, and a sink would take its names for new ones.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.stage.ignoreDecommissionFetchFailure": "false",
    # Up to so many partitions, exchanged rows are written as they come; with more, they are sorted.
    "spark.shuffle.sort.bypassMergeThreshold": "200",
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    # How much finished work Spark remembers for its web page; the defaults are a thousand of each.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "cdc_core.spark.daemon",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


def session_settings(name: str, spark: Mapping[str, str], *, changefeeds: int) -> dict[str, str]:
    """Return the settings of application *name*, which runs *changefeeds* with a user's settings *spark*."""
    # Idle Python workers of a kind that Spark keeps: for the slices of one changefeed, and one for each other. With
    # fewer, most tasks of busy changefeeds would fork a worker and end it. Those that stay idle end by themselves.
    workers = max(4, 2 * host_cores()) + changefeeds - 1
    return {
        "spark.app.name": f"cdc {name}",
        **SETTINGS,
        **_slots(spark, changefeeds),
        **encryption_settings(spark),
        "spark.python.factory.idleWorkerMaxPoolSize": str(workers),
    }


def _slots(spark: Mapping[str, str], changefeeds: int) -> dict[str, str]:
    """Return the master, and how many slices one of *changefeeds* reads at a time where that is not its slots."""
    if "master" in spark:
        return {"spark.master": spark["master"]}
    if changefeeds == 1:
        return {"spark.master": DEFAULT_MASTER}
    cores = host_cores()
    return {"spark.master": f"local[{cores * changefeeds},4]", "spark.default.parallelism": str(cores)}


def driver_settings(scratch: Path, archive: ClassArchive | None, *, queries: bool = False) -> dict[str, str]:
    """Return the settings of a driver whose temporary files are in *scratch*. With *queries* its JVM works on rows."""
    java_options = [
        _QUERY_JAVA_OPTIONS if queries else _JAVA_OPTIONS,
        TMPDIR_OPTION.format(scratch),
        "" if archive is None else archive.java_options(),
    ]
    return {
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": " ".join(java_options).rstrip(),
    }


def is_local(spark: Mapping[str, str]) -> bool:
    """Return whether with the settings *spark* the driver's JVM is the only executor."""
    return spark.get("master", DEFAULT_MASTER).startswith("local") and not is_local_cluster(spark)


def is_local_cluster(spark: Mapping[str, str]) -> bool:
    """Return whether executors are processes of their own on the driver's host."""
    return spark.get("master", "").startswith("local-cluster")


def memory_settings(spark: Mapping[str, str]) -> str:
    """Return every setting of memory that a session has with the settings *spark*, for messages."""
    found = {key: value for key, value in {**SETTINGS, **spark}.items() if "memory" in key.lower()}
    return ", ".join(f"{key} ({value})" for key, value in found.items())
