"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_testing.dead_letter_rig import Rig
from cdc_testing.scripted import Script
from cdc_testing.thread_host import ThreadEngine


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def engine(tmp_path: Path) -> ThreadEngine:
    return ThreadEngine(tmp_path)


@pytest.fixture(scope="module")
def make_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ThreadEngine]:
    return lambda: ThreadEngine(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
