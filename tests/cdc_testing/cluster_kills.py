"""SIGKILL for parts of a Spark cluster, in the middle of a step of the changefeed that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Literal

import psutil
import psycopg
from cdc_testing.postgres import clock
from cdc_testing.processes import command, kill
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster, Worker

from cdc_core.store.progress import ProgressStore

Part = Literal["python", "executor", "worker", "driver", "master"]
Phase = Literal["scan", "log"]

_READING = """
SELECT client_port FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database()
ORDER BY query_start DESC LIMIT 1
"""
_LIMIT_S = 400.0


class ClusterKills:
    """Kills parts of *cluster*, on which *feed* reads the database at *source*. Its progress is in *store*, an URL."""

    def __init__(self, cluster: SparkCluster, feed: Feed, *, source: str, store: str) -> None:
        self._cluster = cluster
        self._feed = feed
        self._source = source
        self._store = store

    def kill(self, part: Part, *, during: Phase) -> None:
        """Kill *part* while a step of the *during* phase is planned and not saved, bring it back, await another step.

        A Python worker, an executor and a worker are those that read a slice of this step.
        """
        with self._frozen(during) as host:
            token = self._token()
            if part == "python":
                for process in _python_workers(host):
                    kill(process)
            elif part == "executor":
                (executor,) = _executors(host)
                kill(executor)
            elif part == "worker":
                host.kill()
            elif part == "master":
                self._cluster.master.kill()
            else:
                processes = self._feed.tree()
                kill(processes[0])
        if part == "driver":
            self._feed.wait()
            _, alive = psutil.wait_procs(processes, timeout=300)
            assert not alive, f"processes outlive the driver: {alive}"
            self._feed.start()
        elif part == "master":
            self._await_step(token)  # its executors are enough
            executors = [process for worker in self._cluster.workers for process in _executors(worker)]
            self._cluster.master.start()
            _, alive = psutil.wait_procs(executors, timeout=_LIMIT_S)  # it does not know their application
            assert not alive, f"executors outlive the master: {alive}"
            token = self._token()
        elif part == "worker":
            self._await_step(token)  # the other one is enough
            host.start()
        self._await_step(token)

    def reach_now(self) -> None:
        """Return when all that is committed at this moment is saved as resolved. A clean stop emits the mark."""
        now = clock(self._source)

        def reached() -> bool:
            with self._progress() as store:
                progress = store.progress.load("test")
            return progress is not None and progress.frontier.high_water >= now

        self._feed.until(f"all up to {now}", reached, limit_s=_LIMIT_S)

    def _await_step(self, token: Any) -> None:
        self._feed.until("another step", lambda: self._token() != token, limit_s=_LIMIT_S)

    @contextmanager
    def _frozen(self, phase: Phase) -> Iterator[Worker]:
        """Stop all executors and their Python processes in the middle of a step; yield the host that reads a slice."""
        found: list[Worker] = []
        stopped: list[psutil.Process] = []

        def caught() -> bool:
            for worker in self._cluster.workers:
                for process in worker.processes():
                    with suppress(psutil.NoSuchProcess):
                        process.suspend()
                        stopped.append(process)
            if self._is_in_a_step(phase):
                found.extend(self._reading(phase))
            if not found:
                _resume(stopped)
            return bool(found)

        self._feed.until(f"a step of the {phase}", caught, limit_s=_LIMIT_S)
        try:
            yield found[0]
        finally:
            _resume(stopped)

    def _is_in_a_step(self, phase: Phase) -> bool:
        with self._progress() as store:
            plan, progress = store.planned_steps.load_plan("test"), store.progress.load("test")
        if plan is None or progress is None or plan["start"] != progress.token:
            return False
        scans = plan["start"]["lsn"] == plan["end"]["lsn"] and plan["start"]["scan"] is not None
        return scans if phase == "scan" else plan["start"]["scan"] is None

    def _reading(self, phase: Phase) -> Iterator[Worker]:
        """Yield the host of the task that sent the last query of its kind."""
        with psycopg.connect(self._source) as connection:
            row = connection.execute(_READING, [f"cdc/test/%/{phase}"]).fetchone()
        for worker in self._cluster.workers if row is not None else ():
            if any(_has_port(process, row[0]) for process in worker.processes()):
                yield worker

    def _token(self) -> Any:
        with self._progress() as store:
            progress = store.progress.load("test")
        return None if progress is None else progress.token

    def _progress(self) -> closing[ProgressStore]:
        return closing(ProgressStore(self._store))


def _resume(stopped: list[psutil.Process]) -> None:
    while stopped:
        with suppress(psutil.NoSuchProcess):
            stopped.pop().resume()


def _has_port(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(each.laddr and each.laddr.port == port for each in process.net_connections("tcp"))
    return False


def _chosen(worker: Worker, wanted: Callable[[str], bool]) -> list[psutil.Process]:
    return [process for process in worker.processes() if wanted(command(process))]


def _executors(worker: Worker) -> list[psutil.Process]:
    return _chosen(worker, lambda words: "CoarseGrainedExecutorBackend" in words)


def _python_workers(worker: Worker) -> list[psutil.Process]:
    """Return the Python processes that run tasks, without the one that they are forked from."""
    daemons = {process.pid for process in _chosen(worker, lambda words: "spark.daemon" in words)}
    return [process for process in worker.processes() if process.pid in daemons and process.ppid() in daemons]
