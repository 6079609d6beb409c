"""Commands for jobs, called as a user calls them, and nodes that only joined."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_testing.command import Cdc
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.store.job_values import Ended, NodeRecord
from cdc_core.store.progress import DeadLetter, ProgressStore
from cdc_core.timestamp import Timestamp


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


def paused_job(store: ProgressStore, file: Path, cdc: Cdc) -> NodeRecord:
    """Create the job of the file, have a node begin it, and pause it; return the node."""
    one = store.nodes.join(node("one"), lease_s=600)
    cdc("create", file)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(5), stage="sink", error="no")
    store.progress.save("orders", adopted.epoch, progress(), dead_letters=[letter])
    Changefeeds(store).pause("orders", "maintenance")
    ended(store, "stopped")
    return one
