"""Fixtures for every test in the tree."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

collect_ignore_glob = ["plugins/template*"]  # .ci/check_outside.py tests them where they are installed
pytest_plugins = [
    "cdc_testing.fixtures",
    "cdc_testing.kafka_fixtures",
    "cdc_testing.store_fixtures",
    "cdc_testing.counts",
    "cdc_testing.table_rows",
    "cdc_testing.webhook_server",
]


def pytest_unconfigure() -> None:
    """Undo what the worker cache does in processes of tasks, which some tests run here.

    Frozen objects are not collected when Python exits, and extension modules report them as leaks after the result.
    """
    gc.unfreeze()


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restore the logging of this process, which the command `cdc` configures."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
