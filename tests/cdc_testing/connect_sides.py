"""The two servers that `connect_requests` compares: a worker of Kafka Connect with file connectors, and ours."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from cdc_sink_kafka.demo.jars import KAFKA_VERSION, jars_of, pom
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.java_server import JavaServer
from cdc_testing.rest_rig import Rest, config, serving_rest
from cdc_testing.stored import node, progress

from cdc_core.store.job_values import NodeRecord

_LIMIT_S = 120.0


class Original:
    """A worker whose connectors read a file in *directory*."""

    part = "org.apache.kafka.connect.storage.StringConverter"
    logger = "org.apache.kafka.connect.runtime.WorkerInfo"

    def __init__(self, worker: ConnectWorker, topic: str, directory: Path) -> None:
        self.url = worker.url
        (directory / "lines").write_text("one\ntwo\n")
        (directory / "loop").symlink_to(directory / "loop")
        self.good = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(directory / "lines"),
            "topic": topic,
        }
        self.broken = {**self.good, "file": str(directory / "loop")}
        self.wrong = {name: value for name, value in self.good.items() if name != "topic"}

    def wait(self, name: str, until: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not self._is(name, until):
            assert time.monotonic() < deadline, f"{name} is not {until}"
            time.sleep(0.05)

    def _is(self, name: str, until: str) -> bool:
        path = f"{self.url}/connectors/{name}/{'offsets' if until == 'offset' else 'status'}"
        answer = httpx2.get(path, timeout=60)
        if answer.status_code != 200:
            return until == "gone"
        found = answer.json()
        if until == "offset":
            return bool(found["offsets"])
        states = [each["state"] for each in found["tasks"]]
        if until == "STOPPED":
            return found["connector"]["state"] == until and not states
        wanted = "RUNNING" if until == "FAILED" else until
        return found["connector"]["state"] == wanted and states == [until]


class Ours:
    """Our server. Its node does what requests make it do, when a test waits."""

    part = "rangefeed.counter"
    logger = logging.getLogger("cdc_testing.of_ours").name

    def __init__(self, rest: Rest, one: NodeRecord, control: Path) -> None:
        self.url, self._rest, self._one = rest.url, rest, one
        self.good = config(control)
        self.broken = config(control)
        self.wrong = {name: value for name, value in self.good.items() if name != "sink"}

    def wait(self, name: str, until: str) -> None:
        store, one = self._rest.store, self._one
        job = store.jobs.find(name)
        assert job is not None
        if until == "gone":
            store.claims.settle(name, one, "stopped")
            store.claims.settle(name, one, "reverted")
            return
        if job.state not in ("running", "paused"):
            store.claims.settle(name, one, "stopped")
        store.claims.adopt(name, one)
        if until == "FAILED":
            store.claims.settle(name, one, "paused", "the sink refuses")
        if until == "offset":
            store.progress.save(name, 1, progress(50))


@contextmanager
def ours(directory: Path) -> Iterator[Ours]:
    (directory / "control").mkdir()
    with serving_rest(directory / "store") as rest:
        yield Ours(rest, rest.store.nodes.join(node("one"), lease_s=600), directory / "control")


_POM = pom(
    "kafka-connect",
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)


class ConnectWorker(JavaServer):
    """The only worker of a cluster, whose topics are in the broker *brokers* and begin with *prefix*."""

    def __init__(self, brokers: str, prefix: str, directory: Path | None = None) -> None:
        super().__init__("Kafka Connect", directory, prefix="cdc-connect-")
        self._brokers, self._prefix = brokers, prefix
        self.url = f"http://127.0.0.1:{free_port()}"

    def start(self) -> None:
        jars = jars_of(f"connect-worker-{KAFKA_VERSION}", _POM, what="Kafka Connect")
        settings = {
            "bootstrap.servers": self._brokers,
            "listeners": self.url,
            "group.id": f"{self._prefix}group",
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "1000",
            **{f"{name}.storage.topic": f"{self._prefix}{name}" for name in ("config", "offset", "status")},
            **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
            **{f"{name}.storage.partitions": "1" for name in ("offset", "status")},
        }
        path = self.directory / "worker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._launch(["-Xmx256m", "-cp", f"{jars}/*", main, str(path)], ready=self._healthy)

    def _healthy(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health", timeout=10).status_code == 200
        except httpx2.HTTPError:
            return False


_OPAQUE = (".partition", ".offset")
"""Objects in which a connector may write what it likes."""
_BY_NAME = (".config", "/config", "/admin/loggers", "/topics", "?expand")
"""Objects whose fields are names of something, by the end of their place or of the request."""
_TOLD = (".state", ".error_code")
"""Fields whose values are compared."""
_WORDS = 28
"""How many characters of a message are compared: clients know messages by their beginnings."""
_NONE = "none"


def seen(answer: httpx2.Response, *, base: str) -> dict[str, str]:
    """Return status, headers, fields and types of *answer* of the server at *base*, by what they are called."""
    found = {"status": str(answer.status_code)}
    for name in ("Content-Type", "Location", "Allow"):
        if name in answer.headers:
            found[name] = ", ".join(sorted(answer.headers[name].removeprefix(base).replace(" ", "").split(",")))
    if not answer.content:
        return {**found, "body": "empty"}
    try:
        body = answer.json()
    except ValueError:
        return {**found, "body": "text"}
    types: dict[str, set[str]] = {}
    asked = answer.request.url.path + ("?expand" if "expand" in answer.request.url.params else "")
    by_name = answer.request.method == "GET" and answer.status_code == 200 and asked.endswith(_BY_NAME)
    for path, kind in _fields(body, "body", by_name=by_name):
        types.setdefault(path, set()).add(kind)
    return found | {path: " or ".join(sorted(kinds)) for path, kinds in types.items()}


def _fields(value: Any, path: str, *, by_name: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield path, "object"
        if path.endswith(_OPAQUE):
            return
        for name, inner in value.items():
            place = f"{path}.{'*' if by_name else name}"
            yield from _fields(inner, place, by_name=place.endswith(".config"))
    elif isinstance(value, list):
        yield path, "list" if value else "empty list"
        for inner in value:
            yield from _fields(inner, f"{path}[]", by_name=False)
    elif path.endswith(_TOLD):
        yield path, str(value)
    elif path == "body.message":
        yield path, f"{str(value)[:_WORDS]} …"
    else:
        yield path, {type(None): "null", bool: "boolean", str: "text"}.get(type(value), "number")


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each place in which two answers differ, with what is there. With another status nothing else is compared.

    A field may have fewer types than theirs. Of a list that is empty in one of them, the items are not compared.
    """
    if theirs["status"] != ours["status"]:
        yield "status", theirs["status"], ours["status"]
        return
    for place in sorted(theirs.keys() | ours.keys()):
        there, here = theirs.get(place, _NONE), ours.get(place, _NONE)
        owner = place.rpartition("[]")[0]
        if owner and theirs.get(owner) != ours.get(owner):
            continue
        if there == here or (place != "Allow" and set(here.split(" or ")) <= set(there.split(" or "))):
            continue
        yield place, there, here
