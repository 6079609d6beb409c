"""The status of a run, for those who look from elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cdc_testing.stored import DEFINITION

from cdc_core.errors import FencedError
from cdc_core.store.progress import ProgressStore


def test_the_status_is_the_one_that_was_saved_last(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    assert store.status("orders") is None
    store.save_status("orders", epoch, {"state": "starting"})
    store.save_status("orders", epoch, {"state": "running", "rows": {"orders": 3}})
    status = store.status("orders")
    assert status is not None
    assert status.values == {"state": "running", "rows": {"orders": 3}}
    assert abs(datetime.now(UTC) - status.written_at) < timedelta(minutes=1)


def test_a_run_that_was_overtaken_saves_no_status(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    old, new = store.begin_attempt("orders"), store.begin_attempt("orders")
    store.save_status("orders", new, {"state": "running"})
    with pytest.raises(FencedError):
        store.save_status("orders", old, {"state": "failed"})
    status = store.status("orders")
    assert status is not None
    assert status.values == {"state": "running"}


def test_the_status_of_a_forgotten_changefeed_is_gone(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    store.save_status("orders", store.begin_attempt("orders"), {"state": "running"})
    store.forget("orders")
    assert store.status("orders") is None
