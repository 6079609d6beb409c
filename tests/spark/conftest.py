"""The engine on a real Spark, in this process: one JVM for all tests, one session a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.dead_letter_rig import Rig
from cdc_testing.engine import Journal, counter_feed, run_feed
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.scripted import Script

from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status


class Engine:
    """Runs counting changefeeds that share a state directory; `script` pulls their strings."""

    def __init__(self, directory: Path, spark: KeptSpark) -> None:
        self.directory = directory
        self.spark = spark
        self.script = Script(directory)
        self.store = ProgressStore(store_url(directory))
        self.statuses: list[Status] = []

    def run(
        self,
        *,
        once: bool = True,
        after_unclean: bool = False,
        watch: Callable[[Status], None] | None = None,
        within_s: float = 600.0,
        own_spark: bool = False,
        resume_command: str | None = None,
        **feed: Any,
    ) -> int:
        """Run to the end. *watch* sees every status. Raises: what the run raises; AssertionError when it takes long.

        Runs share a warm session, other than with *own_spark*.
        """
        deadline = time.monotonic() + within_s

        def show(status: Status) -> None:
            self.statuses.append(status)
            assert time.monotonic() < deadline, f"the run did not end in {within_s:.0f} s: {status}"
            if watch is not None:
                watch(status)

        with ExitStack() as stack:
            if own_spark:
                self.spark.close()
            else:
                stack.enter_context(self.spark.lent())
            changefeed = counter_feed(self.directory, **feed)
            return run_feed(
                changefeed,
                store=self.store,
                state_dir=self.directory,
                once=once,
                after_unclean=after_unclean,
                status=show,
                resume_command=resume_command,
            )

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
def engine(tmp_path: Path, kept_spark: KeptSpark) -> Engine:
    return Engine(tmp_path, kept_spark)


@pytest.fixture(scope="module")
def make_engine(tmp_path_factory: pytest.TempPathFactory, kept_spark: KeptSpark) -> Callable[[], Engine]:
    return lambda: Engine(tmp_path_factory.mktemp("engine"), kept_spark)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
