"""Fixtures of the tests of Kafka Connect's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.rest_rig import Rest, serving_rest
from cdc_testing.stored import node

from cdc_core.store.job_values import NodeRecord


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A server, and a client of it."""
    with serving_rest(tmp_path / "store") as rest:
        yield rest


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """The directory of the orders for the scripted source."""
    (tmp_path / "control").mkdir()
    return tmp_path / "control"


@pytest.fixture
def one(rest: Rest) -> NodeRecord:
    """A node, which does what the test says."""
    return rest.store.nodes.join(node("one"), lease_s=600)
