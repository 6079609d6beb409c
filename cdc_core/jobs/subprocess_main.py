"""One changefeed in a process of its own: `python -m cdc_core.jobs.subprocess_main`, which `SubprocessRun` starts.

It lives no longer than its lease, and no longer than the process that started it. With a path as its argument it is a
`Spare`: it makes Spark ready, creates that file, and waits for its job.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.host_requirements import required_versions
from cdc_core.engine.ipc import POLL_INTERVAL_S, lease_clock, line, outcome_values, packed, read_lines, unpacked
from cdc_core.engine.process_session import kill_session
from cdc_core.engine.supervisor import Outcome, Supervisor
from cdc_core.engine.version_watch import VersionWatch
from cdc_core.jobs.nodes_master import NodesMaster
from cdc_core.masking import MaskingFilter, secret_forms, uri_secrets
from cdc_core.store.progress import ProgressStore
from cdc_core.telemetry.logs import details_of, event_of

log = logging.getLogger("cdc_core.jobs.subprocess_main")  # it runs as __main__

_STATUS_S = 1.0


class _Node:
    """The other side: its orders, and its silence. Kills this process and all it has started when the lease is over."""

    def __init__(self, orders: int, reports: int) -> None:
        self._orders = orders
        self._reports = reports
        self._sending = threading.Lock()
        self._has_job = threading.Event()
        self.job: dict[str, Any] = {}
        self.stop = threading.Event()
        self.abandon = threading.Event()
        self._until = float("inf")
        self._over = False
        for work in (self._listen, self._watch_lease):
            threading.Thread(target=work, name="orders of the node", daemon=True).start()

    def await_job(self) -> None:
        """Return when there is a `job`."""
        self._has_job.wait()

    def say(self, **values: Any) -> None:
        """Send one line. A node that does not listen anymore is about to be noticed.

        Does not return once this process ends itself: the node must not hear what the kills bring about.
        """
        if self._over:
            threading.Event().wait()
        content = line(**values)
        with self._sending:
            try:
                while content:
                    content = content[os.write(self._reports, content) :]
            except BrokenPipeError:
                return

    def _listen(self) -> None:
        try:
            with open(self._orders, "rb") as orders:
                for values in read_lines(orders):
                    self._obey(values)
        finally:
            self._die()

    def _watch_lease(self) -> None:
        while (left_s := self._until - lease_clock()) > 0:
            time.sleep(min(left_s, POLL_INTERVAL_S))
        self._die()

    def _die(self) -> NoReturn:
        """End this process and all that it has started, at once: nothing of them may emit anymore."""
        self._over = True
        kill_session(os.getpid(), but=os.getpid())
        os._exit(1)

    def _obey(self, values: dict[str, Any]) -> None:
        self._until = values.get("until", self._until)
        if "job" in values:
            self.job = values["job"]
            self._has_job.set()
        match values.get("order"):
            case "stop":
                self.stop.set()
            case "abandon":
                self.abandon.set()


class _ToNode(logging.Handler):
    """Sends log records to the node, masked."""

    def __init__(self, say: Callable[..., None], secrets: frozenset[str]) -> None:
        super().__init__()
        self._say = say
        self.addFilter(MaskingFilter(secrets))
        self.addFilter(lambda record: record.name != "root")  # py4j logs tracebacks there that it also raises

    def emit(self, record: logging.LogRecord) -> None:
        self._say(log=[record.levelno, record.name, self.format(record), event_of(record), details_of(record)])


def main() -> None:
    """Run the job that the node sends. It alone hears how that ended: the exit status says nothing."""
    orders, reports = os.dup(0), os.dup(1)  # no process that this one starts has them
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    node = _Node(orders, reports)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: node.stop.set())
    if len(sys.argv) > 1:
        from cdc_core.spark.preload import preload_jvm

        ready = Path(sys.argv[1])
        preload_jvm(ready.with_name("spark.log"))
        ready.touch()
    node.await_job()
    feed: ResolvedChangefeed = unpacked(node.job["feed"])
    secrets = feed.secrets() | secret_forms(uri_secrets(node.job["store"]))
    _log_to(node, secrets)
    try:
        outcome = _run(node, feed)
    except Exception as error:
        outcome = Outcome("failed", error)
    node.say(**outcome_values(outcome, secrets))


def _log_to(node: _Node, secrets: frozenset[str]) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_ToNode(node.say, secrets)]
    root.setLevel(logging.INFO)
    logging.getLogger("cdc_core").setLevel(node.job["level"])
    logging.getLogger("py4j").setLevel(logging.ERROR)


def _run(node: _Node, feed: ResolvedChangefeed) -> Outcome:
    from cdc_core.spark.host import SparkHost
    from cdc_core.spark.standalone import is_of_nodes

    state_dir, store = Path(node.job["state_dir"]), ProgressStore(node.job["store"])
    master = NodesMaster(store) if is_of_nodes(feed.spark) else None
    host = SparkHost(feed.name, feed.spark, state_dir=state_dir, master=master)
    host.queries = feed.queries().compute
    supervisor = Supervisor(
        feed,
        store=store,
        state_dir=state_dir,
        host=host,
        **node.job["run"],
    )
    supervisor.start()
    versions = VersionWatch(partial(required_versions, feed)) if master is not None else None
    said, due = None, float("-inf")
    while True:
        outcome = supervisor.wait(POLL_INTERVAL_S)
        if versions is not None and versions.has_changed():  # no worker will offer the ones that it asked for
            log.warning("changefeed '%s' restarts, because other versions are installed now", feed.name)
            supervisor.stop()
        if node.stop.is_set():
            supervisor.stop()
        if node.abandon.is_set():
            supervisor.abandon()
        status = supervisor.status
        if status != said and (outcome is not None or lease_clock() >= due):
            node.say(status=packed(status), begun=supervisor.has_begun)
            said, due = status, lease_clock() + _STATUS_S
        if outcome is not None:
            return outcome


if __name__ == "__main__":
    main()
