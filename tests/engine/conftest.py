"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_testing.dead_letter_rig import Rig
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import TABLE, Script
from cdc_testing.thread_host import ThreadEngine

from cdc_core import Span
from cdc_core.frontier import Frontier
from cdc_core.store.progress import Progress, ProgressStore, store_url


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def store(script: Script) -> ProgressStore:
    """A store in which the first attempt of a changefeed has begun."""
    store = ProgressStore(store_url(script.directory))
    store.changefeeds.register("t", counter_feed(script.directory).definition())
    assert store.changefeeds.begin_attempt("t") == 1
    store.progress.save("t", 1, Progress(token={"n": 0}, frontier=Frontier([Span(TABLE.name.full)])))
    return store


@pytest.fixture
def engine(tmp_path: Path) -> ThreadEngine:
    return ThreadEngine(tmp_path)


@pytest.fixture(scope="module")
def make_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ThreadEngine]:
    return lambda: ThreadEngine(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
