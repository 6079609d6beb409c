"""What happens to a changefeed changes nothing for the others of its process."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.side_by_side import SideBySide


@pytest.mark.slow
def test_changefeeds_of_one_process_leave_each_other_alone(tmp_path: Path, kept_spark: KeptSpark) -> None:
    kept_spark.close()
    history = SideBySide(tmp_path, seed=23)  # it has nearly every kind of action, each once
    history.play(lambda: len(history.actions) >= 6)
    assert history.faults() == []
