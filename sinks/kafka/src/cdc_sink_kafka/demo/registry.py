"""A real schema registry (Apicurio, in memory) on loopback, with the API of Confluent's registry."""

from __future__ import annotations

import http.client
from pathlib import Path

from cdc_sink_kafka.demo.jars import registry_home
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.java_server import JavaServer

_API = "/apis/ccompat/v7"


class SchemaRegistry(JavaServer):
    """One registry. A context manager: it starts the registry, kills it in the end, and removes a temporary directory.

    A restarted registry is empty and keeps its port. It has neither passwords nor TLS: use a proxy for these.
    """

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__("the schema registry", directory, prefix="cdc-registry-")
        self.port = free_port()

    @property
    def url(self) -> str:
        """The address for clients of a Confluent registry."""
        return f"http://127.0.0.1:{self.port}{_API}"

    def start(self) -> None:
        """Return when the registry answers. It is empty.

        Raises: RuntimeError with the end of the log when it does not start; ConfigError when Java or Maven is missing.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        (jar,) = registry_home().glob("*-runner.jar")
        environment = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self.port)}
        self._launch(["-Xmx256m", "-jar", str(jar)], ready=self._answers, environment=environment)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", f"{_API}/subjects")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
