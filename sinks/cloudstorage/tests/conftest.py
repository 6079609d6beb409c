"""The parts of a sink below a directory of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cdc_testing.cloud_rig import CloudRig


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudRig]:
    """A rig whose parts are closed at the end of the test."""
    with ExitStack() as opened:
        yield CloudRig(tmp_path / "out", opened)
