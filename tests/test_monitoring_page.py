"""docs/monitoring.md: its tables are the code's."""

from __future__ import annotations

import subprocess
import sys

from cdc_testing.imports import ROOT


def test_the_tables_of_metrics_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate_metrics.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr}run: python docs/generate_metrics.py"
