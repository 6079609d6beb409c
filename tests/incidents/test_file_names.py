from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_testing.files import paths_in_order
from cdc_testing.local_engine import LocalEngine

POLICIES: dict[str, dict[str, Any]] = {
    "steps of one row": {"max_step_rows": 1},
    "files of one row": {"file_size": 1},
    "resolved now and then": {"resolved": "1s"},
    "all at once": {},
}


@pytest.mark.parametrize("policy", list(POLICIES))
def test_files_of_spans_that_lag_sort_by_what_was_resolved_when_they_were_written(
    db: SimulatedDatabase, out: Path, engine: Callable[..., LocalEngine], faults: Callable[..., list[str]], policy: str
) -> None:
    """#154325, #139653: flushes between which not all spans had moved gave files names below what was resolved."""
    db.create_table("t")
    for at in (2, 4, 6):
        db.split("t", at=at)
    for at, ms in ((0, 20), (2, 400), (4, 1_500), (6, 20)):
        db.set_lag("t", at=at, ms=ms)
    feed = engine("t", options=POLICIES[policy])
    feed.run()
    apart = 0
    for version in range(8):
        for id_ in range(8):
            db.put("t", id=id_, n=version, node=(version + id_) % 3 + 1)
        db.tick(50)
        feed.step()
        apart = max(apart, len({timestamp for _, timestamp in feed.progress.frontier}))
        if version == 3:
            feed.run()
        if version == 5:
            db.merge("t", at=4)
            db.split("t", at=3)
    feed.until(db.settle())
    assert apart > 1, "spans must have been resolved at different times"
    assert faults(["t"], least=8 * 8) == []


def test_a_step_without_rows_makes_no_file_and_moves_no_name(
    db: SimulatedDatabase, out: Path, engine: Callable[..., LocalEngine], faults: Callable[..., list[str]]
) -> None:
    """#154325: a frontier that was flushed although nothing had arrived changed how the next files were called."""
    db.create_table("t")
    feed = engine("t")
    feed.run()
    for _ in range(10):
        feed.step()
    assert [path for path in paths_in_order(out) if isinstance(parse_name(path.name), DataFile)] == []
    resolved = feed.high_water
    committed = db.put("t", id=1, n=1)
    feed.until(db.now)
    (file,) = [name for path in paths_in_order(out) if isinstance(name := parse_name(path.name), DataFile)]
    assert resolved < file.timestamp <= committed
    assert faults(["t"]) == []
