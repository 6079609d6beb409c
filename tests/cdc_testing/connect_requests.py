"""What clients ask of Kafka Connect: the same requests, in the same order, for any server that speaks its dialect."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx2
from cdc_testing.connect_sides import seen

_BODY = {"Content-Type": "application/json"}
_TEXT = {"Content-Type": "text/plain"}
_LATER = ("conflicting operation", "stale configuration", "rebalance is expected")
"""What a worker says that shares out its connectors anew. Clients ask again."""
_LIMIT_S = 120.0
"""How long one may do so."""


class Server(Protocol):
    """A server to ask. `good`, `broken` and `wrong` are configurations: one that runs, one that fails while it runs,
    and one that lacks a key. `part` is a plugin that is no connector, `logger` a logger.
    """

    url: str
    good: Mapping[str, str]
    broken: Mapping[str, str]
    wrong: Mapping[str, str]
    part: str
    logger: str

    def wait(self, name: str, until: str) -> None:
        """Return when the connector and its tasks have the state *until*, or, with `offset`, when there is one; when
        there is no such connector, with `gone`.
        """


def conversation(server: Server) -> dict[str, dict[str, str]]:
    """Ask everything. Return what the answers look like, by the requests."""
    asking = _Conversation(server)
    asking.of_the_worker()
    asking.of_nothing()
    asking.of_wrong_creations()
    asking.of_creation()
    asking.of_configurations()
    asking.of_running()
    asking.of_resting()
    asking.of_failing()
    asking.of_plugins()
    asking.of_loggers()
    asking.of_deletion()
    return asking.answers


class _Conversation:
    """Asks *server*. `answers` has what they look like, by the requests."""

    def __init__(self, server: Server) -> None:
        self.answers: dict[str, dict[str, str]] = {}
        self.server = server
        self._good = dict(server.good)
        self.client = httpx2.Client(base_url=server.url, timeout=60, limits=httpx2.Limits(max_keepalive_connections=0))

    def ask(self, method: str, path: str, when: str = "", *, json: Any = None, **more: Any) -> httpx2.Response:
        return self.ask_of(method, path, "", "", when, json=json, **more)

    def ask_of(self, method: str, path: str, shown: str, name: str, when: str = "", **more: Any) -> httpx2.Response:
        """Ask for *name*, which is called *shown*."""
        request = f"`{method} {path.format(shown)}`{' ' if when else ''}{when}"
        assert request not in self.answers, request
        answer, deadline = self.client.request(method, path.format(name), **more), time.monotonic() + _LIMIT_S
        while answer.status_code in (409, 500) and any(text in answer.text for text in _LATER):
            late = f"{request}: the worker still shares out its connectors after {_LIMIT_S:.0f} s: {answer.text}"
            assert time.monotonic() < deadline, late
            time.sleep(0.1)
            answer = self.client.request(method, path.format(name), **more)
        self.answers[request] = seen(answer, base=self.server.url)
        return answer

    def of_the_worker(self) -> None:
        self.ask("GET", "/")
        self.ask("GET", "/", "of a browser", headers={"Accept": "text/html,*/*;q=0.8"}, follow_redirects=False)
        self.ask("GET", "/health")
        self.ask("HEAD", "/connectors")
        self.ask("OPTIONS", "/connectors")
        self.ask("PATCH", "/connectors")
        self.ask("DELETE", "/connectors")
        self.ask("POST", "/connectors/orders")
        self.ask("GET", "/connectors/orders/pause")
        self.ask("GET", "/connectors/orders/restart")
        self.ask("POST", "/connector-plugins")
        self.ask("GET", "/nonsense")
        self.ask("GET", "/connectors/orders/nonsense")
        self.ask("GET", "/connectors", "without connectors")
        self.ask("GET", "/connectors/", "without connectors")
        self.ask("GET", "/connectors", "that accepts only XML", headers={"Accept": "application/xml"})

    def of_nothing(self) -> None:
        """Ask for a connector that there is not."""
        for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/topics", "/offsets"):
            self.ask("GET", f"/connectors/nope{path}")
        for verb in ("pause", "resume", "stop", "topics/reset"):
            self.ask("PUT", f"/connectors/nope/{verb}")
        for path in ("restart", "restart?includeTasks=true", "restart?onlyFailed=true", "tasks/0/restart"):
            self.ask("POST", f"/connectors/nope/{path}")
        self.ask("PATCH", "/connectors/nope/config", json={"tasks.max": "1"})
        self.ask("PATCH", "/connectors/nope/offsets", json={"offsets": [{"partition": {}, "offset": None}]})
        self.ask("DELETE", "/connectors/nope/offsets")
        self.ask("DELETE", "/connectors/nope")

    def of_wrong_creations(self) -> None:
        good, wrong = self._good, dict(self.server.wrong)
        for when, body in {
            "without a name": {"config": good},
            "with an empty name": {"name": " ", "config": good},
            "without a configuration": {"name": "orders"},
            "with the configuration null": {"name": "orders", "config": None},
            "with an empty configuration": {"name": "orders", "config": {}},
            "of an unknown class": {"name": "orders", "config": {**good, "connector.class": "Nope"}},
            "whose configuration has another name": {"name": "orders", "config": {**good, "name": "carts"}},
            "with an object as a value": {"name": "orders", "config": {**good, "tasks.max": {"a": 1}}},
            "with the value null": {"name": "orders", "config": {**good, "tasks.max": None}},
            "without a required key": {"name": "orders", "config": wrong},
            "with tasks.max 0": {"name": "orders", "config": {**good, "tasks.max": "0"}},
            "with tasks.max x": {"name": "orders", "config": {**good, "tasks.max": "x"}},
            "with an unknown field": {"name": "orders", "config": good, "nonsense": 1},
            "with a wrong initial_state": {"name": "orders", "config": good, "initial_state": "nonsense"},
            "with initial_offsets": {"name": "orders", "config": good, "initial_offsets": []},
            "with a list as body": [1],
            "with a text as body": "orders",
        }.items():
            self.ask("POST", "/connectors", when, json=body)
        for when, content, headers in (
            ("with broken JSON", b"{", _BODY),
            ("with an empty body", b"", _BODY),
            ("with text/plain", b"{}", _TEXT),
            ("without Content-Type", b"{}", {}),
        ):
            self.ask("POST", "/connectors", when, content=content, headers=headers)

    def of_creation(self) -> None:
        orders = {"name": "orders", "config": self._good}
        self.ask("POST", "/connectors", json=orders)
        self.ask("POST", "/connectors", "of one that there is", json=orders)
        self.server.wait("orders", "RUNNING")
        self.ask("GET", "/connectors")
        for what in ("expand=status", "expand=info", "expand=status&expand=info", "expand=nonsense"):
            self.ask("GET", f"/connectors?{what}")
        for path in ("", "/", "/config", "/status", "/tasks", "/tasks/0/status", "/tasks/9/status", "/tasks/x/status"):
            self.ask("GET", f"/connectors/orders{path}")
        self.ask("POST", "/connectors", "with initial_state", json={
            "name": "resting", "config": self._good, "initial_state": "stopped",
        })  # fmt: skip
        self.server.wait("resting", "STOPPED")
        self.ask("DELETE", "/connectors/resting")
        self.ask("POST", "/connectors", "with an unknown key", json={
            "name": "more", "config": {**self._good, "nonsense": "1"},
        })  # fmt: skip
        self.client.delete("/connectors/more")

    def of_configurations(self) -> None:
        good = self._good
        self.ask("PUT", "/connectors/new/config", json=good)
        self.server.wait("new", "RUNNING")
        self.client.delete("/connectors/new")
        path = "/connectors/orders/config"
        self.ask("PUT", path, json={**good, "tasks.max": "1"})
        self.ask("PUT", path, "with another name", json={**good, "name": "carts"})
        self.ask("PUT", path, "without a required key", json=dict(self.server.wrong))
        self.ask("PUT", path, "without a class", json={})
        self.ask("PUT", path, "with a list as body", json=[])
        self.ask("PUT", path, "with broken JSON", content=b"{", headers=_BODY)
        self.ask("PUT", path, "with an empty body", content=b"", headers=_BODY)
        self.ask("PUT", path, "with text/plain", content=b"{}", headers=_TEXT)
        self.ask("PATCH", path, json={"tasks.max": 1})
        self.ask("PATCH", path, "with null", json={"tasks.max": None})
        self.ask("PATCH", path, "with a wrong value", json={"tasks.max": "0"})
        self.ask("PATCH", path, "with another name", json={"name": "carts"})
        self.ask("PATCH", path, "with broken JSON", content=b"{", headers=_BODY)
        self.server.wait("orders", "RUNNING")

    def of_running(self) -> None:
        self.server.wait("orders", "offset")
        self.ask("GET", "/connectors/orders/offsets")
        self.ask("PATCH", "/connectors/orders/offsets", "while it runs", json={
            "offsets": [{"partition": {"a": "b"}, "offset": None}]
        })  # fmt: skip
        self.ask("DELETE", "/connectors/orders/offsets", "while it runs")
        self.ask("GET", "/connectors/orders/topics")
        self.ask("PUT", "/connectors/orders/topics/reset")
        for path in (
            "restart?onlyFailed=true",
            "restart?includeTasks=true&onlyFailed=true",
            "restart?includeTasks=true",
            "restart",
            "tasks/0/restart",
            "tasks/9/restart",
            "tasks/x/restart",
        ):
            self.ask("POST", f"/connectors/orders/{path}")
            self.server.wait("orders", "RUNNING")

    def of_resting(self) -> None:
        for verb, state in (("pause", "PAUSED"), ("stop", "STOPPED")):
            when = f"of one that is {state}"
            self.ask("PUT", f"/connectors/orders/{verb}")
            self.server.wait("orders", state)
            self.ask("PUT", f"/connectors/orders/{verb}", when)
            for path in ("", "/status", "/tasks", "/tasks/0/status"):
                self.ask("GET", f"/connectors/orders{path}", when)
            self.ask("POST", "/connectors/orders/restart", when)
            self.ask("POST", "/connectors/orders/restart?includeTasks=true", when)
            self.ask("POST", "/connectors/orders/tasks/0/restart", when)
            self.server.wait("orders", state)
            if state == "STOPPED":
                self._of_offsets(when)
            self.ask("PUT", "/connectors/orders/resume", when)
            self.server.wait("orders", "RUNNING")
        self.ask("PUT", "/connectors/orders/resume", "of one that is RUNNING")

    def _of_offsets(self, when: str) -> None:
        path = "/connectors/orders/offsets"
        offsets = self.ask("GET", path, when).json()["offsets"]
        self.ask("PATCH", path, "as they are", json={"offsets": offsets})
        self.ask("PATCH", path, "without offsets", json={})
        self.ask("PATCH", path, "with an empty list", json={"offsets": []})
        self.ask("PATCH", path, "with no list", json={"offsets": "all"})
        self.ask("PATCH", path, "with an unknown field", json={"offsets": offsets, "nonsense": 1})
        self.ask("PATCH", path, "without a partition", json={"offsets": [{"offset": None}]})
        self.ask("PATCH", path, "of an unknown partition", json={"offsets": [{"partition": {"a": "b"}, "offset": {}}]})
        self.ask("PATCH", path, "with broken JSON", content=b"{", headers=_BODY)
        self.ask("PATCH", path, "with text/plain", content=b"{}", headers=_TEXT)
        self.ask("PATCH", path, "with null", json={"offsets": [{**each, "offset": None} for each in offsets]})
        self.ask("DELETE", path)

    def of_failing(self) -> None:
        self.client.post("/connectors", json={"name": "broken", "config": dict(self.server.broken)})
        self.server.wait("broken", "FAILED")
        when = "of one that has failed"
        self.ask("GET", "/connectors/broken/status", when)
        self.ask("GET", "/connectors/broken/tasks/0/status", when)
        self.ask("POST", "/connectors/broken/restart?includeTasks=true&onlyFailed=true", when)
        self.server.wait("broken", "FAILED")
        self.ask("PUT", "/connectors/broken/pause", when)
        self.ask("PUT", "/connectors/broken/resume", when)
        self.ask("DELETE", "/connectors/broken", when)

    def of_plugins(self) -> None:
        name = self._good["connector.class"]
        self.ask("GET", "/connector-plugins")
        self.ask("GET", "/connector-plugins?connectorsOnly=false")
        self.ask("GET", "/connector-plugins/nope/config")
        for shown, plugin in (("CLASS", name), ("NAME", name.rpartition(".")[2]), ("PART", self.server.part)):
            self.ask_of("GET", "/connector-plugins/{}/config", shown, plugin)
        validate = "/connector-plugins/{}/config/validate"
        good = {**self._good, "name": "orders"}
        for when, config in {
            "": good,
            "without a name": self._good,
            "without a required key": {**self.server.wrong, "name": "orders"},
            "with an unknown key": {**good, "nonsense": "1"},
            "with a wrong value": {**good, "tasks.max": "0"},
            "with the value null": {**good, "tasks.max": None},
            "without a class": {"name": "orders"},
            "of another class": {**good, "connector.class": "Nope"},
            "with a list as body": [],
        }.items():
            self.ask_of("PUT", validate, "CLASS", name, when, json=config)
        self.ask_of("PUT", validate, "NAME", name.rpartition(".")[2], json=good)
        self.ask_of("PUT", validate, "CLASS", name, "with broken JSON", content=b"{", headers=_BODY)
        self.ask_of("PUT", validate, "CLASS", name, "with an empty body", content=b"", headers=_BODY)
        self.ask_of("PUT", validate, "CLASS", name, "with text/plain", content=b"{}", headers=_TEXT)
        self.ask("PUT", "/connector-plugins/nope/config/validate", json={**good, "connector.class": "nope"})

    def of_loggers(self) -> None:
        path, name = "/admin/loggers/{}", self.server.logger
        self.ask("GET", "/admin/loggers")
        self.ask("GET", "/admin/loggers/root")
        self.ask("GET", "/admin/loggers/nope")
        self.ask_of("PUT", path, "LOGGER", name, json={"level": "debug"})
        self.ask_of("GET", path, "LOGGER", name)
        self.ask_of("PUT", f"{path}?scope=worker", "LOGGER", name, json={"level": "DEBUG"})
        self.ask_of("PUT", f"{path}?scope=nonsense", "LOGGER", name, json={"level": "DEBUG"})
        self.ask_of("PUT", f"{path}?scope=cluster", "LOGGER", name, json={"level": "WARN"})
        self.ask_of("PUT", path, "LOGGER", name, "without a level", json={})
        self.ask_of("PUT", path, "LOGGER", name, "with a level that is null", json={"level": None})
        self.ask_of("PUT", path, "LOGGER", name, "with an unknown level", json={"level": "LOUD"})
        self.ask_of("PUT", path, "LOGGER", name, "with broken JSON", content=b"{", headers=_BODY)
        self.ask_of("PUT", path, "LOGGER", name, "with text/plain", content=b"{}", headers=_TEXT)
        self.ask("PUT", "/admin/loggers/nope", json={"level": "WARN"})

    def of_deletion(self) -> None:
        self.ask("DELETE", "/connectors/orders")
        self.server.wait("orders", "gone")
        self.ask("DELETE", "/connectors/orders", "a second time")
        self.ask("GET", "/connectors/orders/status", "of one that is deleted")
