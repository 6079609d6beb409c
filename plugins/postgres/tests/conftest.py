"""Fixtures of the PostgreSQL source's tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from cdc_rangefeed_postgres import kept_log, planner
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.clock import Clock
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.kept_session import SOON
from cdc_testing.logprobe import LogProbe
from cdc_testing.standby import standby_of


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    """A primary and its standby. Each commit on the primary waits until the standby has replayed it."""
    settings = {"fsync": "off", "synchronous_commit": "remote_apply"}
    with CopiedPostgres(settings=settings) as primary, standby_of(primary) as standby:
        yield primary, standby


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def probe(database: str) -> Iterator[LogProbe]:
    """The log of the test's own database."""
    with LogProbe(database) as probe:
        yield probe


@pytest.fixture
def threads_ahead() -> Callable[[], set[threading.Thread]]:
    """Return a function that returns the threads which read ahead, other than those that earlier tests have left."""

    def running() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "cdc-read-ahead"}

    before = running()
    return lambda: running() - before


@pytest.fixture(scope="session", autouse=True)
def resolve_soon(marks_of_idle_tables: None) -> None:
    """Also with servers of a test's own."""


@pytest.fixture
def usual_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle source is resolved once a second, as in production: no step comes between what a test does."""
    monkeypatch.setattr(planner, "_IDLE_NS", 1_000_000_000)


@pytest.fixture
def kept_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoding session is kept behind little log, and one that ended is followed by another."""
    for name, value in SOON.items():
        monkeypatch.setattr(kept_log, name, value)
