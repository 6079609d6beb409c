"""`cdc node` as processes that a test can watch and hurt, and jobs for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
from cdc_testing.documented_role import documented
from cdc_testing.processes import tree
from cdc_testing.runs import eventually

from cdc_core.config.definition import changefeed_of
from cdc_core.config.resolve import resolve
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.timestamp import Timestamp

FAST = ("--lease", "5s", "--heartbeat", "1s", "--poll", "250ms")


class NodeProcess:
    """One node in a directory of its own, with its name in the environment variable NODE_NAME.

    The command *within* runs it where it is to run.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        store: str,
        *,
        locality: str = "",
        options: Sequence[str] = FAST,
        spark: bool = True,
        python_path: str | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.options = options
        self._within = within
        self.directory = directory / name
        self.log_path = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._module = "cdc_core" if spark else "cdc_testing.thread_nodes"
        self._path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        if python_path is not None:  # and not what is in the working directory
            self._path = {"PYTHONPATH": python_path, "PYTHONSAFEPATH": "1"}
        self._arguments = ["--store", store, "--name", name, "--directory", str(self.directory), *options]
        if locality:
            self._arguments += ["--locality", locality]

    def start(self) -> Self:
        """Start the node and return at once."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._within, sys.executable, "-m", self._module, "node", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "NODE_NAME": self.name, **self._path},
            )
        return self

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Return the node's process, its JVM, its Python workers and all others that it has started."""
        assert self.process is not None
        return tree(self.process.pid)

    def kill(self) -> None:
        """End the node as `kill -9` does; its JVM and its workers notice by themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop every process of the node, as a host that hangs."""
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def terminate(self) -> None:
        """Ask the node to drain, as systemd and Kubernetes do."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def wait(self, *, limit_s: float = 600.0) -> int:
        """Return the exit status once the node has left."""
        assert self.process is not None
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"node {self.name} did not leave in {limit_s:.0f} s\n{self.log_tail()}") from None

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-60:])

    def end(self) -> None:
        """Kill the node and all that it has started."""
        if self.process is None:
            return
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


class Nodes:
    """Nodes of one store, by name. Leaving the context kills them and shows their logs if a test fails.

    Without *spark* they run changefeeds on threads: what nodes do with jobs is the same, at a tenth of the price. With
    *python_path* they run what is there.
    """

    def __init__(self, directory: Path, store: str, *, spark: bool = True, python_path: str | None = None) -> None:
        self.url = store
        self.store = ProgressStore(store)
        self._directory = directory
        self._spark, self._python_path = spark, python_path
        self._nodes: dict[str, NodeProcess] = {}

    def __getitem__(self, name: str) -> NodeProcess:
        return self._nodes[name]

    def start(
        self, name: str, *, locality: str = "", options: Sequence[str] = FAST, store: str | None = None
    ) -> NodeProcess:
        """Start a node that is new, or one that has ended, and return when it has joined.

        *store* is the URL by which it reaches the store, if not that of the others.
        """
        self.begin(name, locality=locality, options=options, store=store)
        return self.await_join(name)

    def begin(
        self,
        name: str,
        *,
        locality: str = "",
        options: Sequence[str] = FAST,
        store: str | None = None,
        within: Sequence[str] = (),
    ) -> NodeProcess:
        """Start a node as `start` does, *within* such a command, and return at once."""
        node = self._nodes.get(name) or NodeProcess(
            self._directory,
            name,
            store or self.url,
            locality=locality,
            options=options,
            spark=self._spark,
            python_path=self._python_path,
            within=within,
        )
        self._nodes[name] = node
        return node.start()

    def await_join(self, name: str) -> NodeProcess:
        """Return when the node that was started last under *name* has joined."""
        node = self._nodes[name]
        pid = node.process and node.process.pid
        self.eventually(
            f"node {name} joins",
            lambda: not node.is_running or any(each.pid == pid for each in self.store.nodes.all()[1]),
            limit_s=300,
        )
        assert node.is_running, node.log_tail()
        return node

    def create(
        self,
        name: str,
        source: str,
        tables: Sequence[str],
        sink: str,
        *,
        locality: str = "",
        spark: Mapping[str, str] | None = None,
        **options: Any,
    ) -> JobRecord:
        """Make a job that emits `updated` and resolved marks, and saves often: as often as it can, but on Spark with
        pauses, as steps without them would take the processor from the processes that begin.

        `${NODE_NAME}` in its options is the name of the node that runs it.
        """
        secret = self._directory / f"{name}.source"
        secret.write_text(documented(source))
        pause = "500ms" if self._spark else "0s"
        chosen = {"updated": True, "resolved": "0s", "min_checkpoint_frequency": pause, **options}
        if locality:
            chosen["execution_locality"] = locality
        written: dict[str, Any] = {
            "source": f"${{file:{secret}}}",
            "tables": list(tables),
            "sink": sink,
            "options": chosen,
        }
        if spark:
            written["spark"] = dict(spark)
        changefeed = changefeed_of(name, written, origin="the test", environ={"NODE_NAME": ""})
        feed = resolve(changefeed, PluginHost.load())
        return self.store.jobs.create(
            name, feed.definition(), owner="test", locality=Locality.parse(feed.options.execution_locality or "")
        )

    def eventually(
        self, what: str, condition: Callable[[], bool], *, limit_s: float = 600.0, look_s: float = 0.02
    ) -> None:
        """Return as soon as *condition* holds. Raises: AssertionError with the nodes' logs."""
        try:
            eventually(what, condition, limit_s=limit_s, look_s=look_s)
        except AssertionError as error:
            logs = "\n".join(f"--- {node.name}\n{node.log_tail()}" for node in self._nodes.values())
            raise AssertionError(f"{error}\n{logs}") from None

    def job(self, name: str) -> JobRecord:
        found = self.store.jobs.find(name)
        assert found is not None
        return found

    def until(self, name: str, *states: str, limit_s: float = 600.0) -> JobRecord:
        """Return the job as soon as it is in one of *states*."""
        self.eventually(f"job {name} is {states}", lambda: self.job(name).state in states, limit_s=limit_s)
        return self.job(name)

    def high_water(self, name: str) -> Timestamp:
        """Return up to where the job is resolved."""
        found = self.store.changefeeds.find(name)
        assert found is not None
        return found.high_water

    def until_delivering(self, name: str, *, but_not: NodeProcess | None = None, limit_s: float = 600.0) -> NodeProcess:
        """Return the node that runs the job, another one than *but_not*, as soon as its high-water mark moves there."""
        seen: dict[str, Timestamp] = {}

        def delivering() -> bool:
            node, mark = self.job(name).node, self.high_water(name)
            if node is None or (but_not is not None and node == but_not.name):
                return False
            return mark > seen.setdefault(node, mark)

        self.eventually(f"job {name} delivers", delivering, limit_s=limit_s)
        node = self.job(name).node
        assert node is not None
        return self._nodes[node]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes.values():
            node.end()
        self.store.close()
