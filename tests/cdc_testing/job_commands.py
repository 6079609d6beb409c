"""Commands for jobs, called as a user calls them, and nodes that only joined."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import main
from cdc_core.locality import Locality
from cdc_core.store.job_values import Ended, NodeRecord
from cdc_core.store.progress import DeadLetter, ProgressStore
from cdc_core.timestamp import Timestamp

Capture = pytest.CaptureFixture[str]


def created(store: ProgressStore, name: str = "orders", *, locality: str = "") -> NodeRecord:
    """Have a node run a job; return the node."""
    living = [each for each in store.nodes.living() if each.name == "one"]
    one = living[0] if living else store.nodes.join(node("one", "region=eu"), lease_s=600)
    store.jobs.create(name, DEFINITION, owner="ann", locality=Locality.parse(locality))
    assert store.claims.adopt(name, one) is not None
    return one


def ended(store: ProgressStore, how: Ended, name: str = "orders", reason: str | None = None) -> None:
    """Have the node of the job settle it."""
    one = next(each for each in store.nodes.living() if each.name == "one")
    store.claims.settle(name, one, how, reason)


def save(store: ProgressStore, name: str, **status: Any) -> None:
    """Save progress and a status of the job, as its run does."""
    found = store.jobs.find(name)
    assert found is not None
    store.progress.save(name, found.epoch, progress())
    store.statuses.save(name, found.epoch, {"phase": "running", "host": "here", "pid": 7, **status})


def done(capsys: Capture, *arguments: str, status: int = 0) -> str:
    """Return what a command printed."""
    assert main(list(arguments)) == status, capsys.readouterr().err
    printed = capsys.readouterr()
    return printed.out if status in (0, 1) and printed.out else printed.err


def as_json(capsys: Capture, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done(capsys, *arguments, "--json"))
    return found


def refused(capsys: Capture, *arguments: str) -> str:
    """Return the one sentence with which a command was refused."""
    [line] = done(capsys, *arguments, status=2).splitlines()
    return line.removeprefix("error: ")


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Do *action*, as a node would, while the block waits for it."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def until(look: Callable[[], bool]) -> None:
    while not look():
        pass


def paused_job(store: ProgressStore, file: Path, capsys: Capture) -> NodeRecord:
    """Create the job of the file, have a node begin it, and pause it; return the node."""
    one = store.nodes.join(node("one"), lease_s=600)
    assert done(capsys, "create", str(file))
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(5), stage="sink", error="no")
    store.progress.save("orders", adopted.epoch, progress(), dead_letters=[letter])
    Changefeeds(store).pause("orders", "maintenance")
    ended(store, "stopped")
    return one
