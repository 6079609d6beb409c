"""Reports and events, as programs read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.store.progress import ProgressStore


def test_brief_reports_know_as_much_of_jobs_in_fewer_transactions(store: ProgressStore) -> None:
    for name in ("one", "two"):
        store.jobs.create(name, DEFINITION, owner="ann", locality=Locality())
        store.progress.save(name, store.changefeeds.begin_attempt(name), progress())
    store.changefeeds.register("run", DEFINITION)
    store.nodes.join(node("one"), lease_s=600)
    begun: list[object] = []
    read: list[str] = []

    def note(*what: object) -> None:
        begun.append(what)

    def note_statement(*what: object) -> None:
        read.append(str(what[2]))

    sa.event.listen(sa.Engine, "begin", note)
    sa.event.listen(sa.Engine, "before_cursor_execute", note_statement)
    try:
        changefeeds = Changefeeds(store)
        brief = changefeeds.job_reports()
        assert len(begun) == 4
        whole = changefeeds.reports()
        assert len(begun) == 4 + 6
        full = changefeeds.whole_reports()
        assert len(begun) == 4 + 6 + 8
    finally:
        sa.event.remove(sa.Engine, "begin", note)
        sa.event.remove(sa.Engine, "before_cursor_execute", note_statement)
    assert not [text for text in read if "cdc_changefeeds.plan" in text], "the plans of many tables are large"
    assert [each.job and each.job.name for each in whole] == ["one", None, "two"]
    now = datetime.now(UTC)
    one_by_one = [changefeeds.report(each.known.name) for each in full]
    assert [replace(each, now=now).to_json() for each in full] == [
        replace(each, now=now).to_json() for each in one_by_one
    ]
    assert full[0].history
    of_jobs = [each for each in whole if each.job is not None]
    for known, least in zip(of_jobs, brief, strict=True):
        assert replace(least, now=known.now).job_json() == known.job_json()
        assert known.job is not None
        assert replace(changefeeds.job_report(known.job), now=known.now).job_json() == known.job_json()


def test_events_are_those_since_a_time(store: ProgressStore) -> None:
    store.jobs.create("one", DEFINITION, owner="ann", locality=Locality())
    now, changefeeds = datetime.now(UTC), Changefeeds(store)
    assert changefeeds.events("one", since=now - timedelta(hours=1)) == changefeeds.events("one") != []
    assert changefeeds.events("one", since=now + timedelta(hours=1)) == []
