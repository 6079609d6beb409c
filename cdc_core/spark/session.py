"""The Spark session of a run, and its JVM."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from sysconfig import get_path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import ConfigError, TerminalError
from cdc_core.masking import is_secret_name
from cdc_core.private_files import others_may_write
from cdc_core.spark.class_archive import ClassArchive, find_java, link_spark
from cdc_core.spark.jvm import LOOPBACK, forget_jvm, forked_python, start_jvm
from cdc_core.spark.log_file import keep_newest, open_log
from cdc_core.spark.private_api import (
    Py4JError,
    Py4JJavaError,
    is_closed,
    is_connected,
    is_stopped,
    jvm_process,
    mark_closed,
    silence_accumulators,
)
from cdc_core.spark.session_settings import TMPDIR_OPTION, driver_settings, is_local, is_local_cluster, session_settings
from cdc_core.spark.standalone import is_of_nodes

_PYSPARK_PYTHON = os.environ.get("PYSPARK_PYTHON")
_MIN_JAVA = 17
_JVM_END_S = 10.0
_ARCHIVE_S = 120.0
_HAVE_AN_END = (
    "spark.driver.log.persistToDfs.enabled=true",
    "spark.eventLog.enabled=true",
    "spark.extraListeners=",
    "spark.metrics.",
    "spark.plugins=",
    "spark.sql.queryExecutionListeners=",
    "spark.sql.streaming.streamingQueryListeners=",
)
"""How settings begin, with their values, of what is complete only when Spark has stopped."""
_FROM_ELSEWHERE = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_LOCAL_DIRS",
    "SPARK_SUBMIT_OPTS",
)
"""Variables with other settings of such things, options of Java such as agents, or directories for temporary files."""


def require_java() -> None:
    """Raises: ConfigError when there is no Java that Spark can run on, or its user has no name."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise ConfigError(
            f"Spark's Java needs the name of its user, but user ID {os.getuid()} has none; run as a user in /etc/passwd"
        ) from None
    archive = ClassArchive.find()
    if archive is not None and archive.file.exists():  # this Java wrote it
        return
    java = find_java()
    remedy = f"install Java {_MIN_JAVA} or newer (Debian: apt-get install default-jre-headless)"
    if java is None:
        raise ConfigError(f"Spark needs Java, but there is none on the PATH; {remedy}")
    if "JAVA_HOME" in os.environ:
        remedy += ", or correct JAVA_HOME"
    done = subprocess.run(["/bin/sh", "-c", 'exec "$0" -version', java], capture_output=True, text=True)
    shown = " ".join((done.stderr or done.stdout).split())
    if done.returncode:
        raise ConfigError(f"Spark needs Java, but '{java}' does not run: {shown}; {remedy}")
    found = re.search(r'version "(\d+)', shown)
    if found is None or int(found.group(1)) < _MIN_JAVA:
        first = done.stderr.splitlines()[0] if shown else "an unknown version"
        raise ConfigError(f"Spark needs Java {_MIN_JAVA} or newer, but '{java}' is {first}; {remedy}")


def open_session(
    name: str,
    spark: Mapping[str, str],
    *,
    log_path: Path,
    changefeeds: int = 1,
    queries: bool = False,
    wanted: Callable[[], bool] = lambda: True,
) -> SparkSession:
    """Return the session of application *name*, with the settings *spark* over ours.

    Without a master among them there is a task slot for each core and each of *changefeeds*. With *queries*, the JVM on
    this host compiles for speed. The output of the JVM and the Python workers goes to *log_path*, and their temporary
    files into a directory beside it, which is emptied first. Called from any thread, by one at a time. When it raises,
    no JVM is left.

    Raises: TerminalError when Spark cannot start; QueryHostError, an outage, when the master of a cluster does not
    answer; ConfigError when others may write to its files; Stopped when it is no longer *wanted* before its JVM is
    ready.
    """
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = _python(spark)
    settings = session_settings(name, spark, changefeeds=changefeeds)
    if not is_local(spark):  # a JVM that was of a local session has them, and other hosts would look for its sockets
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    home = scratch = None
    archive = ClassArchive.find() if "SPARK_HOME" not in os.environ else None
    if is_of_nodes(spark):
        home, own = None if archive is None else archive.home, _emptied(log_path.with_suffix(".tmp"))
        settings |= driver_settings(own, archive)
        scratch = own if _python(spark) == sys.executable else None
    if is_local(spark) or is_local_cluster(spark):
        own = _emptied(log_path.with_suffix(".tmp"))
        archive = archive if is_local(spark) else None
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        if is_local(spark):
            scratch = own
            settings |= driver_settings(scratch, archive, queries=queries)
        if archive is not None:
            home = archive.home
        elif "SPARK_HOME" not in os.environ:
            home = own / "spark-home"  # the workers of a local cluster write there
            link_spark(home)
    settings |= {key: value for key, value in spark.items() if key != "master"}
    keep_newest(log_path)
    open_log(log_path).close()  # messages name it, also when the JVM of an earlier session prints elsewhere
    try:
        if not is_connected():
            # Every user of this host can read the command line. The session gets all settings.
            shown = {key: value for key, value in settings.items() if not is_secret_name(key)}
            start_jvm(
                shown,
                home=home,
                log_path=log_path,
                scratch=scratch,
                python_path=_python_path(spark),
                wanted=wanted,
            )
        session = _builder(settings).getOrCreate()
        session.sparkContext.pythonExec = forked_python() or session.sparkContext.pythonExec
        silence_accumulators(session.sparkContext)
    except (Py4JJavaError, PySparkException) as error:
        reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)  # the JVM tells it
        forget_jvm(grace_s=0.0)
        if "stopped SparkContext" in reason and not is_local(spark):
            raise QueryHostError(
                f"Spark cannot start: the master {spark['master']} does not respond, or refused the application; see"
                f" {log_path}",
                outage=True,
            ) from None
        raise TerminalError(f"Spark cannot start: {reason}; see {log_path}") from None
    except BaseException:
        forget_jvm(grace_s=0.0)
        raise
    return session


def _python(spark: Mapping[str, str]) -> str:
    """Return the path of the Python that all processes of the application run, on every host: by default ours."""
    if is_local(spark):
        return sys.executable
    return spark.get("spark.pyspark.python") or _PYSPARK_PYTHON or sys.executable


def _python_path(spark: Mapping[str, str]) -> Sequence[str]:
    """Return where Python workers on this host find our packages; nothing if they run our Python, which finds them."""
    if _python(spark) == sys.executable:
        return []
    standard = {get_path("stdlib"), get_path("platstdlib"), f"{get_path('platstdlib')}/lib-dynload"}
    return [path for path in sys.path if path and path not in standard and not path.endswith(".zip")]


def _builder(settings: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.Builder()
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _emptied(scratch: Path) -> Path:
    """Return the directory *scratch*, without files of an earlier JVM. A running JVM keeps its own.

    The JVM and Python load code from it. Raises: ConfigError when others may put files there.
    """
    if not is_connected():
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    if others_may_write(scratch):
        raise ConfigError(
            f"Spark's temporary directory '{scratch}': other users may change code there; remove the directory"
        )
    return scratch


def is_alive(session: SparkSession) -> bool:
    """Return whether *session* can run queries: its JVM is there and its context was not stopped."""
    try:
        return not is_stopped(session)
    except (Py4JError, OSError, AttributeError):
        return False


def close_session(session: SparkSession) -> None:
    """Stop *session* so that `open_session` can start another one; in a new JVM when this one does not answer.

    The first run of an installation ends its JVM some seconds later, which writes the archive of Spark's classes.
    """
    if is_closed(session):
        return
    if is_alive(session):
        with suppress(Py4JError, OSError):
            archive = ClassArchive.due(session.sparkContext)
            session.stop()
            if archive is None:
                return
            archive.write(_end_in_order)
    forget_jvm(grace_s=0.0)


def _end_in_order() -> int | None:
    jvm = jvm_process()
    forget_jvm(grace_s=_ARCHIVE_S)
    return None if jvm is None else jvm.returncode


def end_jvm(session: SparkSession) -> None:
    """Stop *session* and release the memory that Spark holds. `open_session` can start another one.

    A JVM of this host that has nothing to finish is killed: to stop takes Spark a second.
    """
    scratch = _disposable(session)
    if scratch is None:
        close_session(session)
        forget_jvm(grace_s=_JVM_END_S)
    else:
        forget_jvm(grace_s=0.0)
        mark_closed(session)
        _emptied(scratch)
    if (archive := ClassArchive.find()) is not None:
        archive.discard()


def _disposable(session: SparkSession) -> Path | None:
    """Return where the JVM of *session* has its files, if it can be killed and they can go."""
    if is_closed(session) or not is_alive(session) or not is_local({"master": str(session.sparkContext.master)}):
        return None
    try:
        if ClassArchive.due(session.sparkContext) is not None:
            return None
        settings = session.sparkContext.getConf()
        local, options = settings.get("spark.local.dir", ""), settings.get("spark.driver.extraJavaOptions", "")
        ends = tuple(map(str.lower, _HAVE_AN_END))
        found = any(line.startswith(ends) for line in settings.toDebugString().lower().splitlines())
    except (Py4JError, OSError):
        return None
    if found or not local or TMPDIR_OPTION.format(local) not in options or any(map(os.environ.get, _FROM_ELSEWHERE)):
        return None
    return Path(local)
