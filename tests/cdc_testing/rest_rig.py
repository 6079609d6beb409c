"""A server with the whole REST interface over a store, scripted plugins, and a client; no node and no Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx2
from cdc_testing import scripted
from cdc_testing.components import host, rangefeed, sink

from cdc_core.options import parse_options
from cdc_core.plugins.host import PluginHost
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.web.access.access import Access
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Endpoint
from cdc_core.web.endpoints import all_endpoints
from cdc_core.web.requests import Deployment
from cdc_core.web.server import WebServer, application

ENVIRON = {"PW": "hunter2-of-the-source", "PIN": "pin-of-the-shelf", "NOWHERE": "plain-setting"}


def rest_plugins() -> PluginHost:
    """Return a source, encoder and sink that tests give orders, and others with secrets."""
    return host(
        replace(scripted.COUNTER, temporary=True),
        scripted.PLAIN,
        scripted.JOURNAL,
        rangefeed(),
        sink("shelf", options="cdc_testing.components:HookOptions"),
    )


def config(control: Path, **more: str) -> dict[str, str]:
    """Return the configuration of a connector that `rest_plugins` can make."""
    return {
        "connector.class": "cdc.Changefeed",
        "source": "counter://reader:${PW}@host/shop",
        "tables": "counter",
        "sink": "journal://",
        "format": "plain",
        "control": str(control),
        **more,
    }


class Rest:
    """A client of one server, the server's store, and the secrets that its logs mask."""

    def __init__(self, url: str, store: ProgressStore, endpoints: list[Endpoint], kept: set[str]) -> None:
        self.url, self.store, self.endpoints, self.kept = url, store, endpoints, kept
        self.client = httpx2.Client(base_url=url, timeout=60)

    def ask(self, method: str, path: str, *, status: int, json: Any = None, **more: Any) -> Any:
        """Return the JSON of the answer, None of an empty one; it must have *status*."""
        answer = self.client.request(method, path, json=json, **more)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        if not answer.content:
            return None
        found = answer.json()
        if status >= 400 and path != "/health":
            assert (found.keys(), found["error_code"]) == ({"error_code", "message"}, status)
        return found

    def get(self, path: str, **more: Any) -> Any:
        return self.ask("GET", path, status=200, **more)

    def message(self, method: str, path: str, *, status: int, **more: Any) -> str:
        return str(self.ask(method, path, status=status, **more)["message"])

    def state(self, name: str = "orders") -> str:
        return str(self.get(f"/connectors/{name}/status")["connector"]["state"])

    def adopted(self, one: NodeRecord, name: str = "orders") -> None:
        """Have the node adopt a connector."""
        assert self.store.claims.adopt(name, one) is not None

    def ended(self, one: NodeRecord, name: str = "orders", how: Literal["failed", "succeeded"] = "succeeded") -> None:
        """Have the node run a connector until its end."""
        self.adopted(one, name)
        self.store.claims.settle(name, one, how, "no")

    def create(self, name: str, given: Mapping[str, Any], **more: Any) -> Any:
        return self.ask("POST", "/connectors", status=201, json={"name": name, "config": dict(given), **more})


@contextmanager
def serving_rest(
    directory: Path,
    *,
    plugins: PluginHost | None = None,
    tokens: Path | None = None,
    allowed_paths: Sequence[str] = (),
    **environ: str,
) -> Iterator[Rest]:
    """Serve everything over a store in *directory*, to those who have one of *tokens*, a file, if that is given."""
    url = store_url(directory)
    with serving_rest_at(url, plugins=plugins, tokens=tokens, allowed_paths=allowed_paths, **environ) as rest:
        yield rest


@contextmanager
def serving_rest_at(
    url: str,
    *,
    plugins: PluginHost | None = None,
    tokens: Path | None = None,
    allowed_paths: Sequence[str] = (),
    **environ: str,
) -> Iterator[Rest]:
    """Serve everything over the store at *url*."""
    settings = {"max_rate": 1e6, **({} if tokens is None else {"tokens": str(tokens)})}
    access = Access(Address("127.0.0.1", 0), parse_options(AccessSettings, settings, owner="the server"))
    kept: set[str] = set()
    with closing(ProgressStore(url)) as store:
        store.open()
        deployment = Deployment(
            store,
            plugins or rest_plugins(),
            environ={**ENVIRON, **environ},
            keep_secret=kept.update,
            allowed_paths=allowed_paths,
        )
        endpoints = all_endpoints(list)
        with _kept_levels(), WebServer(application(endpoints, deployment, access), access) as server:
            rest = Rest(server.url, store, endpoints, kept)
            with closing(rest.client):
                yield rest


@contextmanager
def _kept_levels() -> Iterator[None]:
    """Restore the levels of all loggers of this process: requests may set them, generated ones those of all."""
    before = {name: logger.level for name, logger in _loggers().items()}
    yield
    for name, logger in _loggers().items():
        logger.setLevel(before.get(name, logging.NOTSET))


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict.items()
    return {"": logging.root, **{name: found for name, found in known if isinstance(found, logging.Logger)}}
