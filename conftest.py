"""Fixtures for every test in the tree."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from cdc_testing.budgets import SECTIONS, budgets
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

collect_ignore_glob = ["plugins/template*"]  # .ci/check_outside.py tests them where they are installed
pytest_plugins = [
    "cdc_testing.costs",
    "cdc_testing.fast_disk",
    "cdc_testing.fixtures",
    "cdc_testing.shared_servers",
    "cdc_testing.kafka_fixtures",
    "cdc_testing.webhook_server",
]

# A shell that runs the tests in the background has SIGINT ignored, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in ("COLUMNS", "LINES"):  # `import readline` sets them for the processes that xdist starts
    os.environ.pop(name, None)

# jsonschema would compile its grammars, for a second in each process, to check IRIs. No test has a wrong one.
sys.modules["rfc3987_syntax"] = ModuleType("rfc3987_syntax")

# A busy machine may pause any test, also while it draws its examples.
settings.register_profile("cdc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cdc")

_OF_A_CLUSTER = ("executors", "kills", "placement", "separate_disks", "wire")
_TOGETHER = {
    "not slow": ("tests/spark/", "tests/end_to_end/"),
    "slow": tuple(f"tests/clusters/test_{name}.py" for name in _OF_A_CLUSTER),
}
"""By the marker expression of a run, what one process runs, as it keeps a Spark or a cluster whose start is dear.

With slow tests one process would have too much to do with all that keep a Spark.
"""


class ByCost(LoadFileScheduling):
    """Shares the tests by file, the dearest first, but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "together" if file.startswith(_TOGETHER[self.config.option.markexpr]) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return ByCost(config, log) if config.option.markexpr in _TOGETHER else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among so many new objects: nearly all of them stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the dearest files first, so that no process is left with one of them at the end."""
    section = SECTIONS.get(config.option.markexpr)
    if section is not None and hasattr(config, "workerinput"):
        of = budgets(section)
        files = [item.nodeid.partition("::")[0] for item in items]
        together = _TOGETHER[config.option.markexpr]
        first = sorted(dict.fromkeys(files), key=lambda file: (not file.startswith(together), -of.get(file, 0)))
        place = {file: number for number, file in enumerate(first)}
        items.sort(key=lambda item: place[item.nodeid.partition("::")[0]])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files without slow tests when only those run: each process would import them all."""
    slow_only = config.option.markexpr == "slow" and collection_path.name.startswith("test_")
    return True if slow_only and collection_path.is_file() and "slow" not in collection_path.read_text() else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let one process rewrite the assertions of a file, and the others read what it wrote."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_unconfigure() -> None:
    """End what the worker caches of tasks keep, as some tests run tasks in this process.

    Otherwise clients complain after the result of the run that they were deleted while open, and extension modules
    report leaks: when Python exits, it does not collect the objects that a worker cache has frozen.
    """
    from cdc_core.engine.worker_cache import WorkerCache

    for cache in vars(sys.modules.get("cdc_core.engine.attempt", object)).values():
        if isinstance(cache, WorkerCache):
            for component, _ in cache._open.values():
                with suppress(Exception):
                    component.close()
    gc.unfreeze()


_freeze = gc.freeze


@pytest.fixture(autouse=True, scope="module")
def only_own_garbage() -> Iterator[None]:
    """Let a collection of garbage traverse only what the tests of a file make, not all that there was before.

    Nothing is frozen meanwhile: what a worker cache froze would stay, with its open files.
    """
    gc.collect()
    _freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        yield


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restore the logging of this process, which the command `cdc` configures."""
    handlers = logging.root.handlers[:]
    levels = [(logger, logger.level) for logger in map(logging.getLogger, (None, "cdc_core", "py4j"))]
    yield
    logging.root.handlers[:] = handlers
    for logger, level in levels:
        logger.setLevel(level)
