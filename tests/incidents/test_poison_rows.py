from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.engine import Journal, counter_feed, run_feed, stop_runs
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.scripted import Script

from cdc_core.config.component import Component
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status

pytestmark = pytest.mark.slow

KEYS = 3
POISON = 20
BEFORE = 40
TOTAL = 60


class Person:
    """Writes versions of a few keys while the changefeed runs, and more while it is paused; then mends the cause."""

    def __init__(self, db: SimulatedDatabase, script: Script, store: ProgressStore) -> None:
        self.db, self.script, self.store = db, script, store
        self.written = 0
        self.reasons: list[str] = []

    def write(self, last: int) -> None:
        for n in range(self.written + 1, last + 1):
            self.db.put("t", id=n % KEYS, n=n, node=n % 2 + 1)
        self.written = last

    def __call__(self, status: Status) -> None:
        if status.phase == "running" and not self.written:
            self.write(BEFORE)
        if status.phase == "paused" and not self.reasons:
            assert status.waiting_for is not None
            self.reasons.append(status.waiting_for)
            self.write(TOTAL)
            (self.script.directory / "bad-rows").unlink()
            self.store.claims.resume_run("t")
        if status.phase == "running" and len(Journal(self.script.directory).numbers()) == TOTAL:
            stop_runs()


@pytest.mark.parametrize("how", ["encode", "refuse"])
def test_a_row_that_nobody_takes_is_waited_for_without_loss_and_in_order(
    db: SimulatedDatabase, tmp_path: Path, kept_spark: KeptSpark, how: str
) -> None:
    """One poison row either stopped feeds for good, so that their history was lost, or was skipped in silence."""
    db.create_table("t")
    script, store = Script(tmp_path), ProgressStore(store_url(tmp_path))
    script.order("bad-rows", json.dumps({"how": how, "rows": [POISON]}))
    feed = dataclasses.replace(
        counter_feed(tmp_path, options={"on_error": "pause", "max_step_rows": 7, "resolved": None}),
        sources=(db.uri,),
        tables=("t",),
        rangefeed=Component(
            registration=PluginHost.load().rangefeed_for(db.uri), values={"batch_rows": 3, "idle_interval": 0}
        ),
    )
    person = Person(db, script, store)
    with kept_spark.lent():
        assert run_feed(feed, store=store, state_dir=tmp_path, once=False, status=person) == 0
    [reason] = person.reasons
    assert f"the row of table public.t with key {{'id': {POISON % KEYS}}}" in reason
    assert Journal(tmp_path).faults(total=TOTAL) == []
