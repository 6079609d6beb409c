"""What an application asked its cluster for, and what the master of a standalone cluster has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from cdc_core.options import counted
from cdc_core.spark.placement_settings import RESOURCE_PREFIX

__all__ = ["offered", "requested"]

_RESOURCE = re.compile(r"spark\.executor\.resource\.(.+)\.amount")


def requested(session: SparkSession) -> str:
    """Return what each executor of the application needs, such as `1 core, 1g of memory`."""
    conf = session.sparkContext.getConf()
    cores = conf.get("spark.executor.cores")
    words = ["every core of a worker" if cores is None else counted(int(cores), "core")]
    words.append(f"{conf.get('spark.executor.memory', '1g')} of memory")
    for key, value in sorted(conf.getAll()):
        if resource := _RESOURCE.fullmatch(key):
            words.append(f"{value} of resource {resource[1]}")
    return ", ".join(words)


def offered(session: SparkSession) -> str:
    """Return what the master has, as the end of a sentence about it."""
    context = session.sparkContext
    if not str(context.master).startswith("spark://"):
        return "does not say what it has; see its own tools for the reason"
    try:
        with _master_state(session) as state:
            alive = [worker for worker in state.workers() if worker.state().toString() == "ALIVE"]
            workers = [_worker(worker) for worker in alive]
            tiers = [{name for name in _resources(worker) if name.startswith(RESOURCE_PREFIX)} for worker in alive]
            others = [
                app.desc().name()
                for app in state.activeApps()
                if app.id() != context.applicationId and app.desc().name()
            ]
    except Py4JError:
        return "does not answer; see Spark's log for the reason"
    if not workers:
        return "has no worker; start one"
    text = f"has {counted(len(workers), 'worker')} ({'; '.join(sorted(workers))})"
    if others:
        names = ", ".join(f"'{name}'" for name in sorted(others))
        text += f", also for {counted(len(others), 'other application')} ({names}), which spark.cores.max would limit"
    return f"{text}; {_remedy(_wanted(session), tiers)}"


def _remedy(wanted: Set[str], tiers: Sequence[Set[str]]) -> str:
    """Return what to do when an application that wants resources for tiers gets no worker of those in *tiers*."""
    if any(wanted <= found for found in tiers):
        return "ask for less, or add workers"
    what = " and ".join(sorted(wanted))
    there = ", ".join(sorted(set().union(*tiers))) or "none"
    return (
        f"no worker has {what}, as execution_locality asks; the tiers that exist are {there}. Change"
        " execution_locality, or start a worker there with the settings of `cdc worker-resources`"
    )


def _wanted(session: SparkSession) -> Set[str]:
    """Return the resources that stand for tiers of execution_locality."""
    found = (_RESOURCE.fullmatch(str(key)) for key, _ in session.sparkContext.getConf().getAll())
    return {each[1] for each in found if each and each[1].startswith(RESOURCE_PREFIX)}


def _worker(worker: Any) -> str:
    names = _resources(worker)
    more = f", {', '.join(names)}" if names else ""
    return f"{worker.host()}: {counted(worker.cores(), 'core')}, {worker.memory()} MB{more}"


def _resources(worker: Any) -> list[str]:
    return [str(name) for name in worker.resources().keys().mkString(",").split(",") if name]


@contextmanager
def _master_state(session: SparkSession) -> Iterator[Any]:
    """Yield the answer of the master to the question of its own web page. It does not say what is in use.

    Of several masters, that of the first that leads; of one that stands by when none does. Its web page may be at any
    port, or off. Raises: Py4JError when none answers.
    """
    context = session.sparkContext
    jvm: Any = context._jvm
    spark = jvm.org.apache.spark
    conf = context._jsc.sc().conf()
    secret_file = getattr(jvm, "org.apache.spark.internal.config.package$").__getattr__("MODULE$").AUTH_SECRET_FILE()
    security = spark.SecurityManager(conf, jvm.scala.Option.empty(), secret_file)
    host = conf.get("spark.driver.host")
    rpc = spark.rpc.RpcEnv.create("cdc", host, 0, conf, security, True)
    try:
        question = spark.util.Utils.classForName(
            "org.apache.spark.deploy.DeployMessages$RequestMasterState$", True, False
        )
        states, problem = [], None
        for place in str(context.master).removeprefix("spark://").split(","):
            try:
                address = spark.rpc.RpcAddress.fromSparkURL(f"spark://{place}")
                master = rpc.setupEndpointRef(address, "Master")
                states.append(master.askSync(question.getField("MODULE$").get(None), jvm.scala.reflect.ClassTag.Any()))
            except Py4JError as error:
                problem = error
        if not states:
            assert problem is not None
            raise problem
        yield next((each for each in states if each.status().toString() == "ALIVE"), states[0])
    finally:
        rpc.shutdown()
