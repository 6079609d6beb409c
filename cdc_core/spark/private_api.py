"""All that the package uses of pyspark, py4j and Spark's JVM without a public way.

With two exceptions: `python_forkserver` knows the modules that Spark runs as programs, and several modules convert
types with `pyspark.sql.pandas.types`.

tests/spark/test_private_api.py has a test for each function, which says what would replace it and fails when Spark
changes what it uses.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from py4j.java_gateway import JavaObject as JavaObject
from py4j.protocol import Py4JError as Py4JError
from py4j.protocol import Py4JJavaError as Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

_CONNECTING = Lock()


def spark_home() -> str:
    """Return where the Spark is that pyspark would start."""
    return str(_find_spark_home())


def connect(connection: Path, process: subprocess.Popen[bytes]) -> None:
    """Give pyspark the JVM *process*, which wrote the file *connection*. It need start none itself."""
    content = connection.read_bytes()  # port, length of the secret, secret
    own = {
        "PYSPARK_GATEWAY_PORT": str(int.from_bytes(content[:4], "big")),
        "PYSPARK_GATEWAY_SECRET": content[8:].decode(),
    }
    with _CONNECTING:
        os.environ.update(own)
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in own:
                os.environ.pop(name, None)
    gateway.proc = process
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm


def is_connected() -> bool:
    """Return whether pyspark has a JVM. Any public question would start one."""
    return SparkContext._gateway is not None


def jvm_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM that pyspark has, if this process started it."""
    return getattr(SparkContext._gateway, "proc", None)


def disconnect() -> None:
    """Have pyspark forget its JVM, which may be dead, and all that it keeps of it: it has no way to start another.

    Whoever still uses a session of that JVM gets a Py4JError or a ConnectionError.
    """
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:  # it looks twice a second whether it shall end
        Thread(target=server.shutdown, name="end of accumulators", daemon=True).start()
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()


def active_context() -> SparkContext | None:
    """Return the context of this process. The public way makes one where there is none."""
    return SparkContext._active_spark_context


def silence_accumulators(context: SparkContext) -> None:
    """Have pyspark print no traceback when the JVM dies: a run reports that in a sentence."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def is_closed(session: SparkSession) -> bool:
    """Return whether *session* was stopped by this process. Pyspark has no public word for it."""
    return session.sparkContext._jsc is None


def mark_closed(session: SparkSession) -> None:
    """Make *session*, whose JVM was killed, one that `is_closed`. Pyspark's `stop` would ask the JVM."""
    session.sparkContext._jsc = None


def is_stopped(session: SparkSession) -> bool:
    """Return whether the context of *session* was stopped by whomever. Raises: Py4JError, OSError, AttributeError."""
    return bool(session.sparkContext._jsc.sc().isStopped())


def forget_secret() -> None:
    """Have the JVM forget the secret that Spark made for an application on this host, which has ended.

    Spark keeps it among the credentials of the JVM's user, where it counts for later applications, before their own.
    """
    _jvm().org.apache.hadoop.security.UserGroupInformation.reset()


def make_active(session: SparkSession) -> None:
    """Make *session* the active one of this thread: Spark looks for data sources there alone, even to register one."""
    assert session._jvm is not None
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def count_jobs(context: SparkContext) -> int:
    """Return how many Spark jobs there were. The public status tracker knows those of a group. Raises: Py4JError."""
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def executor_ids(session: SparkSession) -> set[str]:
    """Return the ids of the executors that are registered now. Python's status tracker has no executors."""
    ids = session.sparkContext._jsc.sc().getExecutorIds().mkString(",")
    return {each for each in str(ids).split(",") if each}


def end_monitors_of_planners() -> int:
    """End the threads with which Spark watches over idle processes of planners; return how many there were.

    Spark starts one with each streaming query and ends none, and each keeps the session of its query. A planner has no
    idle processes.
    """
    count = 0
    for thread in _jvm().Thread.getAllStackTraces().keySet():
        if str(thread.getName()).startswith("Idle Worker Monitor"):
            factory = thread.getClass().getDeclaredField("$outer")
            factory.setAccessible(True)
            if not factory.get(thread).useDaemonEnabled():  # those of tasks have it
                thread.interrupt()
                count += 1
    return count


def run_daemon() -> None:
    """Be the process that Spark forks its Python workers from. It has no hook to load something before them."""
    from pyspark.daemon import manager  # looks at the command line when it is imported

    manager()


def analyzed(rows: DataFrame) -> JavaObject:
    """Return the plan of *rows* with all names and types found."""
    return rows._jdf.queryExecution().analyzed()


def optimized(rows: DataFrame) -> JavaObject:
    """Return the plan of *rows* as Catalyst would run it. The public `explain` only prints."""
    return rows._jdf.queryExecution().optimizedPlan()


def generate_code(rows: DataFrame) -> None:
    """Have Spark write the code for *rows*, for which it reads patterns of dates and LIKE. Compiles and runs nothing.

    Raises: for a pattern, a PySparkException or a Py4JJavaError. Any public way would run a task.
    """
    plan = rows._jdf.queryExecution().executedPlan()
    if plan.nodeName().startswith("WholeStageCodegen"):
        plan.doCodeGen()


def written_out(plan: JavaObject) -> JavaObject:
    """Return *plan* with what stands for other expressions replaced by them: `to_date` has a cast in it."""
    return _jvm().org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)


def pattern_refusal(pattern: str) -> str:
    """Return why Java cannot read the regular expression *pattern*; empty if it can."""
    try:
        _jvm().java.util.regex.Pattern.compile(pattern)
    except PySparkException as error:
        return str(error).partition(" near index")[0]
    return ""


def is_time_zone(name: str) -> bool:
    """Return whether Spark knows the time zone *name*."""
    try:
        _jvm().org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name)
    except PySparkException:
        return False
    return True


def items(sequence: JavaObject) -> Iterator[JavaObject]:
    """Yield what is in *sequence*, of Scala."""
    return (sequence.apply(index) for index in range(sequence.size()))


def expression_of(column: Column) -> JavaObject:
    """Return what Catalyst has for *column*."""
    return _jvm().org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)


def column_of(expression: JavaObject) -> Column:
    """Return *expression* of Catalyst as a column."""
    return type(f.lit(0))(_jvm().org.apache.spark.sql.classic.ExpressionUtils.column(expression))  # of classic Spark


def with_children(expression: JavaObject, children: Sequence[JavaObject]) -> JavaObject:
    """Return *expression* over other operands."""
    return expression.withNewChildren(_jvm().PythonUtils.toSeq(children))


def literal(value: int, type_: JavaObject) -> Column:
    """Return *value*, as Spark holds it inside, as a constant of *type_*, a type of Catalyst."""
    return column_of(_jvm().org.apache.spark.sql.catalyst.expressions.Literal(value, type_))


def tried(value: Column) -> Column:
    """Return a struct with the *value* of an expression, or null where evaluating it fails.

    SQL has `try_` functions for a few operators, and none for any expression.
    """
    # Arrow refuses nulls of a struct that has a field without nulls.
    return tried_value(f.struct(_nullable(value).alias("value")))


def tried_value(value: Column) -> Column:
    """Return the *value* of an expression, null where evaluating it fails as well."""
    return column_of(_jvm().org.apache.spark.sql.catalyst.expressions.TryEval(expression_of(_nullable(value))))


def _nullable(value: Column) -> Column:
    return column_of(_jvm().org.apache.spark.sql.catalyst.expressions.KnownNullable(expression_of(value)))


def can_up_cast(session: SparkSession, given: DataType, wanted: DataType) -> bool:
    """Return whether each value of the type *given* is one of *wanted*."""
    parsed = [session._jsparkSession.parseDataType(type_.json()) for type_ in (given, wanted)]
    return bool(_jvm().org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(*parsed))


def _jvm() -> Any:
    assert SparkContext._jvm is not None
    return SparkContext._jvm
