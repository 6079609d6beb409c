"""What every test of the tree may use."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

collect_ignore_glob = ["plugins/template*"]  # tested where they are installed, outside of the tree
pytest_plugins = [
    "cdc_testing.fixtures",
    "cdc_testing.kafka_fixtures",
    "cdc_testing.store_fixtures",
    "cdc_testing.counts",
    "cdc_testing.table_rows",
    "cdc_testing.webhook_server",
]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """The command sets up logging for its process, which here runs other tests as well."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
