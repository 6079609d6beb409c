"""A source whose clock went back since the last mark, such as a standby that was promoted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_testing.stored import DEFINITION

from cdc_core import Timestamp
from cdc_core.engine import checks
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.values import Progress


@pytest.mark.parametrize(
    ("clock", "latest", "end"),
    [
        (Timestamp(9), Timestamp(5), Timestamp(9)),
        (Timestamp(9), Timestamp(9), Timestamp(9)),
        (Timestamp(4), Timestamp(9, 7), Timestamp(10)),
    ],
)
def test_a_run_with_once_delivers_what_was_committed_after_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Timestamp, latest: Timestamp, end: Timestamp
) -> None:
    store = ProgressStore(store_url(tmp_path))
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), Progress(token={}, latest=latest))
    monkeypatch.setattr(checks, "source_clock", lambda _: clock)
    feed: Any = SimpleNamespace(name="orders")
    assert checks.end_of_once(feed, store) == end
    store.close()
