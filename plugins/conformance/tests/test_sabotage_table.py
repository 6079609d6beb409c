"""The whole table: no promise is without a saboteur, and each saboteur fails exactly the test of its promise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cdc_conformance.sabotage.cases import HOMES


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(HOMES))
def test_every_promise_can_be_broken_and_is_missed(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cdc_conformance.sabotage", "--kind", kind], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"\n{done.stdout}\n{done.stderr}"
