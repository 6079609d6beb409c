"""The master and the worker of Spark's standalone cluster, out of the installed pyspark, as child processes.

They end when this process does, however that ends. Their web pages listen on the loopback interface only, and the
master's REST interface, which needs no secret, is off.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pyspark

from cdc_core.engine.process_session import kill_in, kill_session
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.spark.class_archive import ClassArchive
from cdc_core.spark.jvm import LOOPBACK, ForkedPython
from cdc_core.spark.log_file import LIMIT_BYTES, keep_newest, open_log
from cdc_core.spark.placement_settings import resource_name

SLOTS = 64
"""How many jobs may run across the nodes at a time. Each has one executor of each worker: that of its slot."""
EXECUTORS = "spark.cdc.executors"
"""The setting of an application that has how many executors it may have. Some hosts may have other versions."""
_SLOT = "cdc_job_"
_SLOT_SETTING = f"spark.executor.resource.{_SLOT}"
_TIED = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9);"
    " os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
"""Runs a program that the kernel kills when the thread that started it ends (PR_SET_PDEATHSIG, SIGKILL).

Its first argument is the process of that thread: when that has ended before, nothing is run.
"""
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SECURED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.master.rest.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.master.ui.decommission.allow.mode": "DENY",
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NOTICED = "20"
"""Seconds after which the master gives up a worker that is silent."""
_RECOVERY_S = "8s"
"""How long a master that takes over waits for the workers and applications of the last one."""
_PROBE_S = 2.0
_WEB_PORTS, _MAX_PROBES = range(20_000, 30_000), 100
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Through no proxy that the environment names."""


def application_settings(
    own: Mapping[str, str],
    *,
    master: str,
    secret: str,
    address: str,
    cores: int,
    executors: int,
    slot: int,
    versions: Mapping[str, str],
) -> dict[str, str]:
    """Return the Spark settings of a driver at *address* whose application is the one of *slot*.

    It gets an executor with *cores* on each worker that has these *versions*, by distribution, and Spark's and Python's
    of this process; also on those that join later. While nodes are upgraded, others stay out. The settings *own* of its
    definition change all but the master, the slot and the encryption. Raises: ConfigError when they name a slot.
    """
    if taken := [key for key in own if key.startswith(_SLOT_SETTING)]:
        raise ConfigError(f"Spark setting '{taken[0]}': only the node that runs the changefeed sets it; remove it")
    return {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.executor.cores": str(cores),
        "spark.executor.memory": "512m",
        EXECUTORS: str(executors),
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        **{f"spark.executor.resource.{name}.amount": "1" for name in _packages(versions)},
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        # A host that hangs holds up a step for so long.
        "spark.executor.heartbeatInterval": "5s",
        "spark.network.timeout": "40s",
        "spark.network.timeoutInterval": "5s",
        **own,
        "master": master,
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        f"{_SLOT_SETTING}{slot}.amount": "1",
    }


def _packages(versions: Mapping[str, str]) -> list[str]:
    """Return the names of the resources by which a worker says that it has these *versions*, and those of the host."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {**versions, "pyspark": pyspark.__version__, "forked_python": python}
    return [_NOT_IN_NAMES.sub("_", f"cdc_has_{name}_{version}") for name, version in found.items()]


def is_of_nodes(spark: Mapping[str, str]) -> bool:
    """Return whether *spark* are the settings of an application across the nodes."""
    return any(key.startswith(_SLOT_SETTING) for key in spark)


class _Daemon:
    """A program of Spark with the properties *conf*, in *directory*. Started and ended by one thread, which lives on.

    It listens at *address*, and knows *secret*.
    """

    name: str
    program: str
    _variables: Mapping[str, str] = {}
    """What else it has in its environment."""

    def __init__(self, directory: Path, conf: Mapping[str, str], *, address: str, secret: str) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)  # what executors print and write is in it
        self.log_path = directory / f"{self.name}.log"
        self._address = address
        self._secret = secret
        self._properties = directory / f"{self.name}.properties"
        self._properties.touch(mode=0o600)
        self._properties.write_text("".join(f"{key} {value}\n" for key, value in {**_SECURED, **conf}.items()))
        self._web_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start the program, and return at once. Raises: OSError."""
        archive = ClassArchive.find()
        home = Path(pyspark.__file__).parent if archive is None else archive.home
        mapped = archive.java_options() if archive is not None and archive.file.exists() else ""
        self._web_port = _free_port()
        where = ["--host", self._address, "--webui-port", str(self._web_port)]
        program = [str(home / "bin" / "spark-class"), self.program, *where, "--properties-file", str(self._properties)]
        keep_newest(self.log_path)
        with open_log(self.log_path) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA_OPTIONS} -XX:+ExitOnOutOfMemoryError",
                    # Executors have it too.
                    "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {mapped}".strip(),
                    "SPARK_NO_DAEMONIZE": "1",
                    "SPARK_LOCAL_IP": LOOPBACK,  # where the page listens
                    "_SPARK_AUTH_SECRET": self._secret,
                    **self._variables,
                },
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def state(self) -> Mapping[str, Any] | None:
        """Return what the program says of itself, None when it says nothing."""
        with suppress(OSError, ValueError, HTTPException):
            url = f"http://{LOOPBACK}:{self._web_port}/json/"
            with _DIRECT.open(url, timeout=_PROBE_S) as answer:
                found = json.load(answer)
                return found if isinstance(found, dict) else None
        return None

    def abandon(self) -> None:
        """End the program, and return at once. From any thread; the one that started it calls `kill` too."""
        if (process := self._process) is not None:
            process.kill()

    def kill(self) -> None:
        """End it with all that it has started, and return then. Does nothing after that."""
        process, self._process = self._process, None
        if process is not None:
            kill_session(process.pid)
            process.kill()
            process.wait()


def _free_port() -> int:
    """Return a free port for a page, outside the kernel's default range for outgoing connections.

    Java takes seconds to listen, and a connection could take one of that range meanwhile.

    Raises: OSError when none of many is free.
    """
    for port in random.sample(_WEB_PORTS, _MAX_PROBES):
        with suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            return port
    raise OSError(f"none of {_MAX_PROBES} ports of {LOOPBACK} between {_WEB_PORTS[0]} and {_WEB_PORTS[-1]} is free")


class MasterProcess(_Daemon):
    """The master, at *port*, with the files that an earlier master of the cluster has written."""

    name, program = "master", "org.apache.spark.deploy.master.Master"

    def __init__(
        self, directory: Path, *, address: str, port: int, secret: str, files: Mapping[str, str], epoch: int
    ) -> None:
        self.epoch = epoch
        self._port = port
        self._kept = directory / "recovery"
        conf = {
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self._kept),
            "spark.deploy.recoveryTimeout": _RECOVERY_S,
            "spark.worker.timeout": _NOTICED,
            "spark.port.maxRetries": "0",
        }
        super().__init__(directory, conf, address=address, secret=secret)
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        for name, content in files.items():
            (self._kept / Path(name).name).write_bytes(base64.b64decode(content))

    def start(self, *arguments: str) -> None:
        super().start("--port", str(self._port), *arguments)

    def files(self) -> dict[str, str]:
        """Return the files from which a later master can continue, by name, in base64."""
        found = {}
        for path in sorted(self._kept.iterdir()):
            with suppress(OSError):  # removed meanwhile
                found[path.name] = base64.b64encode(path.read_bytes()).decode()
        return found


class WorkerProcess(_Daemon):
    """The worker, in *locality*, with *cores* and *memory* (bytes) for the executors of each application together.

    *versions*, by distribution, are what is installed for their tasks.
    """

    name, program = "worker", "org.apache.spark.deploy.worker.Worker"

    def __init__(
        self,
        directory: Path,
        *,
        address: str,
        secret: str,
        cores: int,
        memory: int,
        locality: Locality,
        versions: Mapping[str, str],
    ) -> None:
        self._cores = cores
        self._memory = memory
        self._work, self._scratch = directory / "work", directory / "tmp"
        self._variables = {"SPARK_LOCAL_DIRS": str(self._scratch)}  # executors inherit them
        if locality.tiers:
            self._variables["CDC_LOCALITY"] = str(locality)
        shared = [*(resource_name(*tier) for tier in locality.tiers), *_packages(versions)]
        resources = dict.fromkeys(shared, SLOTS) | {f"{_SLOT}{number}": 1 for number in range(SLOTS)}
        listed = [
            {
                "id": {"componentName": "spark.worker", "resourceName": name},
                "addresses": [str(address) for address in range(count)],
            }
            for name, count in resources.items()
        ]
        self._directory = directory
        self._python: ForkedPython | None = None
        file = directory / "resources.json"
        conf = {
            "spark.worker.resourcesFile": str(file),
            "spark.worker.timeout": _NOTICED,
            "spark.worker.cleanup.enabled": "true",
            "spark.worker.cleanup.appDataTtl": "3600",
            "spark.executor.logs.rolling.strategy": "size",
            "spark.executor.logs.rolling.maxSize": str(LIMIT_BYTES),
            "spark.executor.logs.rolling.maxRetainedFiles": "2",
            **{f"spark.worker.resource.{name}.amount": str(count) for name, count in resources.items()},
        }
        super().__init__(directory, conf, address=address, secret=secret)
        file.write_text(json.dumps(listed))

    def start(self, *masters: str) -> None:
        """Start it; it registers with one of *masters*.

        Executors of a worker that was killed end with it, unless they had just begun: those would never end, and fail
        all tasks without their files.
        """
        kill_in(self._work.resolve())
        for written in (self._work, self._scratch):
            shutil.rmtree(written, ignore_errors=True)
        variables = {f"spark.executorEnv.{name}": value for name, value in self._variables.items()}
        python = ForkedPython(variables, scratch=self._directory, log_path=self.log_path, session=True)
        self._python, self._variables = python, {**self._variables, "PATH": python.path}
        # Executors of several jobs share the cores, as the changefeeds of one host do.
        size = ["--cores", str(self._cores * SLOTS), "--memory", f"{self._memory >> 20}m"]
        super().start(*size, "--work-dir", str(self._work), *masters)

    def kill(self) -> None:
        super().kill()
        python, self._python = self._python, None
        if python is not None:
            python.end()
