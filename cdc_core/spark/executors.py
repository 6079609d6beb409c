"""The executors of a cluster: waiting for them, and asking each whether it can run tasks of a changefeed."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.host_checks import Answer, answer
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import ConfigError, FencedError, RetryableError, from_wire
from cdc_core.options import counted, format_duration
from cdc_core.spark.private_api import Py4JError, Py4JJavaError, executor_ids
from cdc_core.spark.session import is_alive
from cdc_core.spark.standalone import EXECUTORS, is_of_nodes

log = logging.getLogger(__name__)

_POLL_S = 0.1
_SETTLED_S = 1.0
"""Executors that start together register within this time of each other, more or less."""
_ROUNDS = 20
_ROUND_S = 0.5
_POLL_INTERVAL_S = 5.0
_GROWN_S = 60.0
_MAX_SHOWN = 3
_RESOURCE = re.compile(r"spark\.executor\.resource\.(.+)\.amount")
_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\S+)\)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")
_OTHER_PYTHON = re.compile(r"different version: ([\d.]+) than that in driver:? ([\d.]+)")


@dataclass
class Presence:
    """When the executors of a session were seen last, and looked for last, by a monotonic clock.

    `slots` is how many tasks they could run at a time since `changed_at`. `settled` are those of the last wait.
    """

    seen_at: float = 0.0
    looked_at: float = 0.0
    slots: int = 0
    changed_at: float = 0.0
    settled: set[str] = field(default_factory=set)

    def has_room(self, slots: int) -> bool:
        """Return whether there has been room for more than *slots* tasks at a time for long enough to rely on it."""
        return self.slots > slots and self.looked_at - self.changed_at >= _GROWN_S


def await_executors(session: SparkSession, wait_s: float, presence: Presence, *, stopped: Callable[[], bool]) -> int:
    """Return how many tasks can run at a time, once executors are there; earlier when *stopped* becomes true.

    Where the settings say how many executors there will be, it waits for all of them, but not longer than *wait_s*.

    Raises: QueryHostError when there is none after *wait_s*. It says what was asked for.
    """
    with _demand(session):
        presence.settled = _awaited(session, wait_s, presence.settled, stopped=stopped)
    slots = max(1, session.sparkContext.defaultParallelism)
    log.info("%s with %s", counted(len(presence.settled), "executor"), counted(slots, "task slot"))
    return slots


def _awaited(session: SparkSession, wait_s: float, known: set[str], *, stopped: Callable[[], bool]) -> set[str]:
    """Return the executors that are there when no more are to be expected soon: those that are *known* are settled."""
    context, pause = session.sparkContext, Event()
    conf = context.getConf()
    wanted, all_of_nodes = int(conf.get("spark.executor.instances") or 1), int(conf.get(EXECUTORS) or 0)
    began, changed = time.monotonic(), float("-inf")
    while not stopped():
        if not is_alive(session):
            raise QueryHostError(
                f"the master {context.master} ended the application; see Spark's log for the reason", outage=True
            )
        now = time.monotonic()
        if (found := executor_ids(session)) != known:
            known, changed = found, now
        late = now - began >= wait_s
        settled = 0 < all_of_nodes <= len(known) or now - changed >= _SETTLED_S
        if known and (late or len(known) >= wanted) and settled:
            break
        if late and not known:
            raise QueryHostError(
                f"no executor started within {format_duration(wait_s)} (executor_wait): each needs"
                f" {_requested(session)},"
                f" and {_gave_none(session)}",
                outage=True,
            )
        pause.wait(_POLL_S)
    return known


def require_executors(session: SparkSession, wait_s: float, presence: Presence) -> None:
    """Return unless there has been no executor for *wait_s*. Cheap; Spark itself waits forever, and says nothing.

    With dynamic allocation there may be none because there is nothing to do. Raises: QueryHostError.
    """
    now = time.monotonic()
    if now - presence.looked_at < _POLL_INTERVAL_S:
        return
    if now - presence.looked_at > 2 * _POLL_INTERVAL_S or executor_ids(session) or _is_dynamic(session):
        presence.seen_at = now
    presence.looked_at = now
    if now - presence.seen_at >= wait_s:
        raise QueryHostError(
            f"there has been no executor for {format_duration(wait_s)} (executor_wait): {_gave_none(session)}",
            outage=True,
        )
    slots = 0 if _is_dynamic(session) else session.sparkContext.defaultParallelism
    if slots != presence.slots:
        presence.slots, presence.changed_at = slots, now


def check_executors(session: SparkSession, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
    """Return when every executor of the moment has said that it can run tasks of *config*.

    Returns earlier when *stopped* becomes true. An executor that is busy with other tasks all the time is left to the
    check that each process makes for itself. Raises: ConfigError, which names hosts; QueryHostError.
    """
    option = config.to_option()
    answers: dict[str, Answer] = {}
    missing = executor_ids(session)
    pause = Event()
    for count in range(_ROUNDS):
        if stopped() or not missing:
            return
        pause.wait(_ROUND_S if count else 0.0)
        try:
            # Spark deals tasks out to executors in turn. One that was busy gets its task in another round.
            found = _asked(session, option, len(missing), stopped=stopped)
        except (PySparkException, Py4JJavaError) as error:
            raise _problem(str(error)) from None
        answers |= {each.executor: each for each in found}
        _refuse(list(answers.values()))
        missing = executor_ids(session) - answers.keys()
    log.info("executor %s is busy, and will be checked when this changefeed gives it a task", min(missing))


def _asked(session: SparkSession, option: str, count: int, *, stopped: Callable[[], bool]) -> list[Answer]:
    """Return the answers of *count* tasks; none when *stopped* becomes true before they have run."""
    context, group = session.sparkContext, f"preflight {uuid4().hex}"

    def ask() -> list[Answer]:
        context.setJobGroup(group, "ask executors whether they can run tasks")
        return context.parallelize(range(count), count).mapPartitions(partial(_answers, option)).collect()

    with ThreadPoolExecutor(1, thread_name_prefix="asking executors") as pool:
        asking = pool.submit(ask)
        while not wait([asking], timeout=_POLL_S).done:
            if stopped():
                context.cancelJobGroup(group)
        if stopped():
            return []
        return asking.result()


@contextmanager
def _demand(session: SparkSession) -> Iterator[None]:
    """Have a task that waits for an executor, inside the block: with dynamic allocation Spark asks for none without."""
    if not _is_dynamic(session):
        yield
        return
    context, group = session.sparkContext, f"demand {uuid4().hex}"

    def demand() -> None:
        context.setJobGroup(group, "wait for the first executor")
        with suppress(PySparkException, Py4JError):  # canceled
            session.range(1).count()

    with ThreadPoolExecutor(1, thread_name_prefix="waiting for an executor") as pool:
        demanding = pool.submit(demand)
        try:
            yield
        finally:
            while not demanding.done():
                with suppress(Py4JError):
                    context.cancelJobGroup(group)  # again and again, as it ends nothing before the job has begun
                wait([demanding], timeout=_POLL_S)


def _is_dynamic(session: SparkSession) -> bool:
    return session.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true"


def _answers(option: str, _: Iterator[int]) -> Iterator[Answer]:
    yield answer(option)


def _requested(session: SparkSession) -> str:
    """Return what each executor of the application needs, such as `1 core, 1g of memory`."""
    conf = session.sparkContext.getConf()
    cores = conf.get("spark.executor.cores")
    words = ["every core of a worker" if cores is None else counted(int(cores), "core")]
    words.append(f"{conf.get('spark.executor.memory', '1g')} of memory")
    for key, value in sorted(conf.getAll()):
        if resource := _RESOURCE.fullmatch(key):
            words.append(f"{value} of resource {resource[1]}")
    return ", ".join(words)


def _gave_none(session: SparkSession) -> str:
    """Return that the master gave no executor, and where to see why."""
    master, settings = session.sparkContext.master, session.sparkContext.getConf().getAll()
    found = f"the master {master} offered none"
    if not str(master).startswith("spark://"):
        return f"{found}; see the master's own tools for the reason"
    if is_of_nodes(dict(settings)):
        return (
            f"{found}; start `cdc node --cores N` where execution_locality matches, with the job's versions and"
            " enough --memory, and see the logs of the nodes for their workers"
        )
    found += "; its web page and its log show its resources"
    if any((resource := _RESOURCE.fullmatch(key)) and resource[1].startswith("cdc_") for key, _ in settings):
        found += ". Change execution_locality, or start a worker there with the settings of `cdc worker-resources`"
    return found


def _refuse(answers: list[Answer]) -> None:
    """Raise a ConfigError with the problems of *answers*, if any; one that is not a ConfigError goes first."""
    problems, repairable = set(), True
    for each in answers:
        error = from_wire(each.problem)
        if isinstance(error, FencedError | RetryableError):
            raise error
        if error is not None:
            problems.add(str(error))
            repairable &= error.repairable
        elif each.problem:
            problems.add(f"executor {each.executor} on host {each.host}: {each.problem.splitlines()[-1]}")
            repairable = False
    if problems:
        more = f"; and {len(problems) - _MAX_SHOWN} more" if len(problems) > _MAX_SHOWN else ""
        raise ConfigError("; ".join(sorted(problems)[:_MAX_SHOWN]) + more, repairable=repairable)


def _problem(text: str) -> Exception:
    """Return the error for a task that Spark could not run: mostly, the installation is not on the executor's host.

    That is repairable, as in `HostRequirements.require`.
    """
    lost = _LOST_TASK.search(text)
    where = f"executor {lost[2]} on host {lost[1]}" if lost else "an executor"
    if found := _NO_PYTHON.search(text):
        return ConfigError(
            f"{where} has no Python at {found[1]}; install the same environment there, or set spark.pyspark.python",
            repairable=True,
        )
    if found := _OTHER_PYTHON.search(text):
        return ConfigError(
            f"{where} has Python {found[1]}, but the driver has {found[2]}; set spark.pyspark.python to the same "
            "version on every host",
            repairable=True,
        )
    if found := _NO_MODULE.search(text):
        return ConfigError(
            f"{where} has no Python module {found[1]}; install the driver's packages there, or set"
            " spark.pyspark.python",
            repairable=True,
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in lines if "Job aborted" in line), lines[0] if lines else "no reason given")
    return QueryHostError(f"{where} cannot run Python tasks: {reason}; see Spark's log")
