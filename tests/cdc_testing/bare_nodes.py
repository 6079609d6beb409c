"""Nodes without Spark, whose changefeeds never get past the wait for it: for tests of what a node does around them.

`python -m cdc_testing.bare_nodes STORE DIRECTORY NAME=VALUE...` runs one, with a child process whose number it prints
when a changefeed is stuck, until SIGTERM.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_testing import components
from cdc_testing.components import encoder, rangefeed, sink
from cdc_testing.runs import eventually

from cdc_core import errors
from cdc_core.config.definition import changefeed_of
from cdc_core.config.resolve import resolve
from cdc_core.jobs.node import Node
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.options import parse_options
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore

_SCRIPTED = "cdc_testing.scripted:"


class StuckHost:
    """Opens no session for a changefeed before that is `freed`."""

    is_local, is_alive, is_shared = True, True, True
    log_name, memory_settings = "spark.log", ""
    death = None

    def __init__(self) -> None:
        self.stuck: set[str] = set()
        self.freed: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    def acquire(self, user: str) -> int:
        if user != "the node":
            self.stuck.add(user)
            self.freed[user].wait()
        return 1

    def preload(self, *, stopped: Any) -> None:
        """Do nothing."""

    def release(self, user: str) -> None:
        """Nothing is held."""


def __getattr__(name: str) -> Any:
    """Raise the error of that name: what a plugin does whose options are `cdc_testing.bare_nodes:NAME`."""
    if name.startswith("__"):
        raise AttributeError(name)
    kind = getattr(errors, name, None) or {"SystemExit": SystemExit, "ZeroDivisionError": ZeroDivisionError}[name]
    raise kind("the plugin is broken")


def plugins(*, broken: str | None = None) -> PluginHost:
    """Return a source `counter` and a source `frail`, which is *broken* by an error of that name."""
    options = f"{_SCRIPTED}CounterOptions"
    frail = options if broken is None else f"cdc_testing.bare_nodes:{broken}"
    return components.host(
        rangefeed("counter", schemes=("counter",), options=options),
        rangefeed("frail", schemes=("frail",), options=frail),
        encoder(),
        sink(options=f"{_SCRIPTED}JournalOptions"),
    )


def create(
    store: ProgressStore,
    name: str,
    source: str = "counter",
    *,
    owner: str = "ann",
    locality: str = "",
    master: str = "",
    control: str = "/tmp",
) -> None:
    """Make a job of that source, which is to run in *locality* and on the Spark *master*, if these are given.

    *control* is an option of source and sink.
    """
    written: dict[str, Any] = {
        "source": f"{source}://",
        "tables": ["t"],
        "sink": "shelf://",
        "options": {"control": control, **({"execution_locality": locality} if locality else {})},
        **({"spark": {"master": master}} if master else {}),
    }
    feed = resolve(changefeed_of(name, written, origin="the test", environ={}), plugins())
    store.jobs.create(name, feed.definition(), owner=owner, locality=Locality.parse(locality))


def bare_settings(store: str, directory: Path, **options: str) -> NodeSettings:
    """Return the settings of a fast node of the directory's name, whose session outlasts any pause of the machine."""
    fast = {"poll": "20ms", "lease": "10m", "heartbeat": "100ms"}
    given = {"store": store, "directory": str(directory), "name": directory.name, **fast, **options}
    return parse_options(NodeSettings, given, owner="the test")


@contextmanager
def bare_node(settings: NodeSettings, host: StuckHost, plugins: PluginHost) -> Iterator[Node]:
    """Run a node in a thread; at the end it leaves, and what it runs is freed."""
    node = Node(settings, host, plugins, keep_secret=lambda _: None)  # type: ignore[arg-type]
    thread = threading.Thread(target=node.run)
    thread.start()
    try:
        yield node
    finally:
        node.abandon()
        host.freed.default_factory = lambda: freed
        for each in list(host.freed.values()):
            each.set()
        thread.join(300)
        assert not thread.is_alive()


freed = threading.Event()
freed.set()


def main() -> None:
    url, directory, *options = sys.argv[1:]
    settings = bare_settings(url, Path(directory), **dict(option.split("=", 1) for option in options))
    host = StuckHost()
    child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    node = Node(settings, host, plugins(), keep_secret=lambda _: None)  # type: ignore[arg-type]
    signal.signal(signal.SIGTERM, lambda *_: node.drain())

    def tell() -> None:
        eventually("a changefeed is stuck", lambda: host.stuck)
        print(json.dumps({"child": child.pid}), flush=True)

    threading.Thread(target=tell, daemon=True).start()
    node.run()


if __name__ == "__main__":
    main()
