"""A Spark standalone cluster on this machine whose workers see different disks, as hosts do.

The master is 127.0.0.1, worker n is 127.0.0.(n + 1). Each worker, with its executors, has a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pyspark
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.native_server import NativeServer
from cdc_testing.processes import kill, runs_tasks
from cdc_testing.runs import eventually

from cdc_core.spark.class_archive import ClassArchive

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What costs a JVM the least that lives for a minute."""
LOCALITIES = ("region=eu", "region=us")
"""Those of the workers."""
SECRET = "only-the-cluster-knows-it"
_PRIVATE = {"spark.authenticate": "true", "spark.authenticate.secret": SECRET}
_FIRST = 2
"""The last number of the first worker's address."""


def _home() -> Path:
    """Return the Spark home that goes with `_java_options`."""
    archive = ClassArchive.find()
    return Path(pyspark.__file__).parent if archive is None else archive.home


def _java_options() -> str:
    archive = ClassArchive.find()
    return JAVA_OPTIONS if archive is None else f"{JAVA_OPTIONS} {archive.java_options()}"


def require_namespaces() -> None:
    """Return when this process may make mount namespaces. Raises: RuntimeError that says why not."""
    tried = subprocess.run(_unshared("true"), capture_output=True, text=True)
    if tried.returncode != 0:
        raise RuntimeError(f"no mount namespaces here: {tried.stderr.strip()}")


def _unshared(script: str) -> list[str]:
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


class _Daemon(NativeServer):
    """A master or a worker with the Spark settings *conf*. Its executors end with it."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        super().__init__(prefix="cdc-spark-cluster-")
        self.port, self.web_port = free_port(), free_port()
        self.properties = self.directory / "spark.properties"
        self.properties.write_text("".join(f"{name} {value}\n" for name, value in conf.items()))

    def environment(self) -> Mapping[str, str]:
        return {
            "SPARK_HOME": str(_home()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _java_options(),
            "SPARK_NO_DAEMONIZE": "1",
        }

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        super().kill()

    def spark_class(self, name: str, host: str, *more: str) -> list[str]:
        spark_class = str(_home() / "bin" / "spark-class")
        where = ["--host", host, "--port", str(self.port), "--webui-port", str(self.web_port)]
        return [spark_class, name, *where, "--properties-file", str(self.properties), *more]


class Master(_Daemon):
    """The master of a cluster. `url` is what a changefeed's option `master` says."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        super().__init__({**conf, "spark.master.rest.enabled": "false"})

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return self.spark_class("org.apache.spark.deploy.master.Master", "127.0.0.1")

    def answers(self) -> bool:
        with suppress(OSError, ValueError):
            return bool(self.state()["status"] == "ALIVE")
        return False

    def state(self) -> Any:
        """Return what the master says of workers and applications. Raises: OSError, ValueError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=60) as answer:
            return json.load(answer)


class Worker(_Daemon):
    """A worker at *host* which, with its executors, sees an empty directory of its own in place of each of *private*.

    It is at *locality*.
    """

    def __init__(
        self, master: Master, host: str, conf: Mapping[str, str], *, private: Sequence[Path], locality: str
    ) -> None:
        super().__init__(conf)
        self.host = host
        self.locality = locality
        self._master = master
        self._private = private

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "CDC_LOCALITY": self.locality}

    def command(self) -> Sequence[str]:
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / "work"), self._master.url]
        worker = ["exec", *self.spark_class("org.apache.spark.deploy.worker.Worker", self.host, *options)]
        mounts = [["mount", "-t", "tmpfs", "tmpfs", str(path)] for path in self._private]
        return _unshared(" && ".join(map(shlex.join, [*mounts, worker])))

    def kill(self) -> None:
        """Kill all processes of the host: Spark's Python workers are in a process group of their own."""
        processes = self.processes()
        super().kill()
        for process in processes:
            kill(process)

    def processes(self) -> list[psutil.Process]:
        """Return what runs on the host besides the worker: executors, and the Python processes of their tasks."""
        try:
            return psutil.Process(self.pid).children(recursive=True) if self._process is not None else []
        except psutil.NoSuchProcess:
            return []

    @contextmanager
    def seeing(self, path: Path, source: Path) -> Iterator[None]:
        """Let the host see *source* in place of *path*. Its Python processes start anew for that, and at the end."""
        self._mount("mount", "--bind", str(source), str(path))
        try:
            yield
        finally:
            self._mount("umount", "--lazy", str(path))

    def _mount(self, *command: str) -> None:
        subprocess.run(["nsenter", "--mount", "--target", str(self.pid), *command], check=True)
        for process in filter(runs_tasks, self.processes()):
            kill(process)

    def answers(self) -> bool:
        with suppress(OSError, ValueError):
            workers = self._master.state()["workers"]
            return any((each["port"], each["state"]) == (self.port, "ALIVE") for each in workers)
        return False


class SparkCluster:
    """A master and two workers of one core and 1 GB each, at LOCALITIES. Who knows SECRET may use it, encrypted.

    All see the directory `shared`. Of `private` each worker sees one of its own, and this process another. `first` is
    the same for this process and the first worker, and another one for the second.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="cdc-cluster-"))
        self.shared, self.private, self.first = (self.directory / name for name in ("shared", "private", "first"))
        for directory in (self.shared, self.private, self.first):
            directory.mkdir()
        conf = {**_PRIVATE, "spark.network.crypto.enabled": "true"}
        self.master = Master(conf)
        self.workers = [
            Worker(
                self.master,
                f"127.0.0.{number}",
                conf,
                private=[self.private] if number == _FIRST else [self.private, self.first],
                locality=locality,
            )
            for number, locality in enumerate(LOCALITIES, start=_FIRST)
        ]
        self._running = ExitStack()

    @property
    def settings(self) -> dict[str, str]:
        """The Spark settings of a changefeed that runs here."""
        return {
            "master": self.master.url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": _java_options(),
            "spark.executor.extraJavaOptions": _java_options(),
            "spark.executor.memory": "512m",
            **_PRIVATE,
        }

    @property
    def home(self) -> Path:
        """The Spark home of a driver that has these settings."""
        return _home()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            stack.enter_context(self.master)
            for worker in self.workers:
                stack.enter_context(worker)
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def await_free(self) -> None:
        """Return when no application holds cores or memory of the workers."""
        eventually("free workers", lambda: self.master.state()["coresused"] == 0)

    @contextmanager
    def without(self, worker: Worker) -> Iterator[None]:
        """Kill *worker*, with its executors, and see that it runs at the end."""
        worker.kill()
        eventually("its death", lambda: not worker.answers())
        try:
            yield
        finally:
            if not worker.answers():
                worker.start()
