"""The executors of a cluster: waiting for them, and asking each whether it can run tasks of a changefeed."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.preflight import Answer, answer
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import ConfigError, from_wire
from cdc_core.options import counted, format_duration
from cdc_core.spark.master_offer import asked, offered
from cdc_core.spark.session import is_alive

__all__ = ["await_executors", "check_executors"]

log = logging.getLogger(__name__)

_POLL_S = 0.1
_SETTLED_S = 1.0
"""Executors that start together register within this time of each other, more or less."""
_ROUNDS = 20
_MOST_SHOWN = 3
_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\S+)\)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")
_OTHER_PYTHON = re.compile(r"different version: ([\d.]+) than that in driver:? ([\d.]+)")


def await_executors(session: SparkSession, wait_s: float, *, stopped: Callable[[], bool]) -> int:
    """Return how many tasks can run at a time, once executors are there; earlier when *stopped* becomes true.

    Where the settings say how many executors there will be, it waits for all of them, but not longer than *wait_s*.

    Raises: QueryHostError when there is none after *wait_s*. It says what was asked for and what the master has.
    """
    context, pause = session.sparkContext, Event()
    wanted = int(context.getConf().get("spark.executor.instances") or 1)
    began = time.monotonic()
    known: set[str] = set()
    changed = began
    while not stopped():
        if not is_alive(session):
            raise QueryHostError(f"the master {context.master} ended the application; see Spark's log for the reason")
        now = time.monotonic()
        if (found := _executors(session)) != known:
            known, changed = found, now
        late = now - began >= wait_s
        if known and (late or len(known) >= wanted) and now - changed >= _SETTLED_S:
            break
        if late and not known:
            raise QueryHostError(
                f"no executor began within {format_duration(wait_s)} (executor_wait): each needs {asked(session)},"
                f" and the master {context.master} {offered(session)}"
            )
        pause.wait(_POLL_S)
    slots = max(1, context.defaultParallelism)
    log.info("%s with %s", counted(len(known), "executor"), counted(slots, "task slot"))
    return slots


def check_executors(session: SparkSession, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
    """Return when every executor of the moment has said that it can run tasks of *config*.

    Returns earlier when *stopped* becomes true. Raises: ConfigError, which names hosts; QueryHostError when some
    executor gets no task in many tries.
    """
    option = config.to_option()
    answers: dict[str, Answer] = {}
    missing = _executors(session)
    for _ in range(_ROUNDS):
        if stopped() or not missing:
            return
        try:
            # Spark deals tasks out to executors in turn. One that was busy gets its task in another round.
            tasks = session.sparkContext.parallelize(range(len(missing)), len(missing))
            found = tasks.mapPartitions(partial(_answers, option)).collect()
        except (PySparkException, Py4JJavaError) as error:
            raise _problem(str(error)) from None
        answers |= {each.executor: each for each in found}
        _refuse(list(answers.values()))
        missing = _executors(session) - answers.keys()
    raise QueryHostError(f"executor {min(missing)} was given no task; see Spark's log for the reason")


def _answers(option: str, _: Iterator[int]) -> Iterator[Answer]:
    yield answer(option)


def _executors(session: SparkSession) -> set[str]:
    """Return the ids of the executors that are registered now."""
    ids = session.sparkContext._jsc.sc().getExecutorIds().mkString(",")
    return {each for each in str(ids).split(",") if each}


def _refuse(answers: list[Answer]) -> None:
    """Raise a ConfigError with the problems of *answers*, if there are any."""
    problems = sorted({str(from_wire(each.problem) or each.problem) for each in answers if each.problem})
    if problems:
        more = f"; and {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
        raise ConfigError("; ".join(problems[:_MOST_SHOWN]) + more)


def _problem(text: str) -> Exception:
    """Return the error for a task that Spark could not run: mostly, the installation is not on the executor's host."""
    lost = _LOST_TASK.search(text)
    where = f"executor {lost[2]} on host {lost[1]}" if lost else "an executor"
    if found := _NO_PYTHON.search(text):
        return ConfigError(
            f"{where} has no Python at {found[1]}; install the same environment there, or set spark.pyspark.python"
        )
    if found := _OTHER_PYTHON.search(text):
        return ConfigError(
            f"{where} has Python {found[1]}, and the driver has {found[2]}; let spark.pyspark.python name the same"
            " version on every host"
        )
    if found := _NO_MODULE.search(text):
        return ConfigError(
            f"{where} has no Python module {found[1]}; install what the driver has there, or set spark.pyspark.python"
        )
    return QueryHostError(f"{where} cannot run Python tasks: {text.strip().splitlines()[0]}")
