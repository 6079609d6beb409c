"""What the tests of the engine share."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.scripted import Script


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)
