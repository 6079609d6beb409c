"""The engine on a real Spark, in this process: one JVM for all tests, one session a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import Journal, counter_job
from cdc_testing.scripted import Script

from cdc_core.progress import ProgressStore, store_url
from cdc_core.status import Status

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def workers_find_the_tests() -> Iterator[None]:
    """Python workers inherit the environment, not `sys.path`."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), before]))
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


class Engine:
    """Runs counting changefeeds that share a state directory; `script` pulls their strings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = Script(directory)
        self.store = ProgressStore(store_url(directory))
        self.statuses: list[Status] = []

    def run(
        self,
        *,
        once: bool = True,
        watch: Callable[[Status], None] | None = None,
        within_s: float = 150.0,
        warm_up: bool = False,
        **job: Any,
    ) -> int:
        """Run to the end. *watch* sees every status. Raises: what the run raises; AssertionError when it takes long."""
        from cdc_core.spark import runner

        deadline = time.monotonic() + within_s

        def show(status: Status) -> None:
            self.statuses.append(status)
            assert time.monotonic() < deadline, f"the run did not end in {within_s:.0f} s: {status}"
            if watch is not None:
                watch(status)

        with pytest.MonkeyPatch.context() as patch:
            if not warm_up:
                patch.setattr(runner, "warm_up", lambda *_, **__: None)
            changefeed = counter_job(self.directory, **job)
            return runner.run(changefeed, store=self.store, state_dir=self.directory, once=once, status=show)

    @property
    def journal(self) -> Journal:
        return Journal(self.directory)

    @property
    def phases(self) -> list[str]:
        """The phases that the run went through."""
        phases: list[str] = []
        for status in self.statuses:
            if not phases or phases[-1] != status.phase:
                phases.append(status.phase)
        return phases

    @property
    def saved(self) -> int:
        progress = self.store.load("t")
        return 0 if progress is None else progress.token["n"]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


@pytest.fixture(scope="module")
def make_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Engine]:
    return lambda: Engine(tmp_path_factory.mktemp("engine"))
