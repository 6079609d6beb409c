"""kill -9 of the changefeed and of its store: readers of manifests get every row once, readers of names at least once.

test_kills.py has files in a directory. `python tests/kills/run.py` does the same with more kills, and with Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.kill_run import KillRun
from cdc_testing.object_stores import SeaweedFS

pytestmark = pytest.mark.slow


def test_files_in_a_store_that_is_killed(database: str, workers_find_the_tests: None, tmp_path: Path) -> None:
    with SeaweedFS() as store:
        report = KillRun(tmp_path, database, store.uri("kills"), store=store, seed=1, spark=False).play(4)
    assert report.faults == [], report
    assert report.kills == {"process": 2, "store": 2}
    assert report.read == report.versions > 1000
    assert report.repeated_steps > 0, report
