from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.engine import Journal, counter_feed, run_feed
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.scripted import Script

from cdc_core.config.component import Component
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

ROWS = 400


@pytest.mark.slow
@pytest.mark.parametrize("only", [True, False], ids=["initial_scan=only", "--once"])
def test_success_is_reported_when_all_rows_are_durable_and_not_before(
    db: SimulatedDatabase, tmp_path: Path, kept_spark: KeptSpark, only: bool
) -> None:
    """A90146: feeds that end by themselves reported success while their sinks still held rows."""
    db.create_table("t")
    with db.transaction() as txn:
        for id_ in range(ROWS):
            txn.put("t", id=id_, n=id_)
    script = Script(tmp_path)
    options = {"resolved": None, "initial_scan": "only"} if only else {}
    feed = dataclasses.replace(
        counter_feed(tmp_path, options=options),
        sources=(db.uri,),
        tables=("t",),
        rangefeed=Component(registration=PluginHost.load().rangefeed_for(db.uri), values={"batch_rows": 25}),
    )
    # A flush that fails, and one whose report is lost, are among those that success must wait for.
    script.order("flush", "RetryableSinkError the destination is busy")
    script.order("before-report", "OSError the report is lost")
    with kept_spark.lent():
        status = run_feed(
            feed, store=ProgressStore(store_url(tmp_path)), state_dir=tmp_path, once=True, status=lambda _: None
        )
    journal = Journal(tmp_path)
    assert status == 0
    assert not script.pending("flush")
    assert not script.pending("before-report")
    assert journal.numbers() == set(range(ROWS))
    assert len(journal.epochs) > 1
