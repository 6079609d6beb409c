"""A real schema registry (Apicurio, in memory) on loopback, with the interface of Confluent's."""

from __future__ import annotations

import http.client
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from cdc_sink_kafka.demo.jars import registry_home
from cdc_sink_kafka.demo.java_process import JavaProcess, free_port

__all__ = ["SchemaRegistry"]

_API = "/apis/ccompat/v7"


class SchemaRegistry:
    """One registry. Entering starts it; leaving ends it and removes its directory when that is a temporary one.

    It forgets all when it is stopped or killed; its port stays the same from start to start. It knows no passwords and
    no TLS: what needs them puts a proxy before it.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="cdc-registry-")) if directory is None else directory.absolute()
        self.log_path = self.directory / "server.log"
        self.port = free_port()
        self._process = JavaProcess(f"the schema registry in {self.directory}", self.log_path)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """What clients of a Confluent registry take as its address."""
        return f"http://127.0.0.1:{self.port}{_API}"

    @property
    def pid(self) -> int:
        """Process id of the running registry."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process; it may be paused."""
        return self._process.running

    def start(self) -> None:
        """Return when the registry answers; it is empty.

        Raises: RuntimeError with the log's tail when it does not come up; ConfigError when Java or Maven is missing.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        (jar,) = registry_home().glob("*-runner.jar")
        environment = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self.port)}
        self._process.start(["-Xmx256m", "-jar", str(jar)], ready=self._answers, environment=environment)

    def stop(self) -> None:
        """End the registry in order. `start` may follow. May be called twice."""
        self._process.stop()

    def kill(self) -> None:
        """End the registry by SIGKILL. `start` may follow. May be called when it is not running."""
        self._process.kill()

    def pause(self) -> None:
        """Stop the registry where it is (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        self._process.pause()

    def resume(self) -> None:
        """Let a paused registry go on."""
        self._process.resume()

    def close(self) -> None:
        """End the registry at once and remove its directory when that is a temporary one. May be called twice."""
        self._process.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", f"{_API}/subjects")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
