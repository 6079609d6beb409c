"""Jobs hold back history at their sources, and not for longer than they may."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from cdc_testing.stored import DEFINITION

from cdc_core import Frontier, Span, Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError
from cdc_core.jobs.retention_limit import POLL_INTERVAL_S, WARN_AFTER_S, WARN_EVERY_S, RetentionLimit, expires_after
from cdc_core.locality import Locality
from cdc_core.store.job_tables import JOBS
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import Progress, ProgressStore
from cdc_core.store.reports import report

NODE = NodeRecord(
    node_id="", name="n", locality=Locality(), host="here", pid=1, directory="/n", version="1", max_jobs=9
)
HOUR_S = 3_600.0


def definition(**options: Any) -> dict[str, Any]:
    return {**DEFINITION, "written": {"options": options}}


def create(store: ProgressStore, *, marked_at: float | None = None, **options: Any) -> float:
    """Make the job 'orders', with a high-water mark if *marked_at*. Return the database's clock."""
    store.jobs.create("orders", definition(**options), owner="ann", locality=Locality())
    if marked_at is not None:
        epoch = store.changefeeds.begin_attempt("orders")
        frontier = Frontier([Span("shop.public.orders")])
        frontier.forward(Span("shop.public.orders"), Timestamp(int(marked_at * 1e9)))
        store.progress.save("orders", epoch, Progress(token={}, frontier=frontier))
    return store.claims.overview().now


def state(store: ProgressStore) -> tuple[str, str | None]:
    found = store.jobs.find("orders")
    assert found is not None
    return found.state, found.reason


@pytest.mark.parametrize("paused", [False, True])
def test_a_job_that_holds_back_more_than_it_may_is_canceled(
    store: ProgressStore, caplog: pytest.LogCaptureFixture, paused: bool
) -> None:
    now = store.claims.overview().now
    create(store, marked_at=now - 3 * HOUR_S - 1, GC_PROTECT_EXPIRES_AFTER="2h")
    if paused:
        Changefeeds(store).pause("orders", "maintenance")
    assert RetentionLimit(store).enforce(now) == ["orders"]
    reason = "it has retained history at its source for 3 h 0 min, longer than gc_protect_expires_after = 2h"
    assert state(store) == ("cancel-requested", reason)
    assert f"job 'orders' is canceled: {reason}" in caplog.text
    assert RetentionLimit(store).enforce(now) == [], "it is being canceled already"


def test_the_age_before_the_first_mark_is_that_of_the_job(store: ProgressStore) -> None:
    now = create(store, gc_protect_expires_after="2h")
    assert RetentionLimit(store).enforce(now + 1.9 * HOUR_S) == []
    assert RetentionLimit(store).enforce(now + 2.1 * HOUR_S) == ["orders"]


def test_a_fresh_mark_keeps_an_old_job(store: ProgressStore) -> None:
    now = store.claims.overview().now + 100 * HOUR_S
    create(store, marked_at=now - HOUR_S, gc_protect_expires_after="2h")
    assert RetentionLimit(store).enforce(now) == []


def claimed(store: ProgressStore) -> None:
    assert store.claims.adopt("orders", store.nodes.join(NODE, lease_s=1_000 * HOUR_S)) is not None


def test_by_default_a_job_that_rests_may_hold_back_four_days_from_then_on(store: ProgressStore) -> None:
    now = store.claims.overview().now
    create(store, marked_at=now - 500 * HOUR_S)
    store.claims.await_match("orders", reason="no node")
    assert RetentionLimit(store).enforce(now) == [], "it was far behind before, and rests only now"
    assert RetentionLimit(store).enforce(now + 95 * HOUR_S) == []
    assert RetentionLimit(store).enforce(now + 97 * HOUR_S) == ["orders"]
    (event,) = store.events.read(kinds=["history_expired"])
    assert (event.changefeed, event.message) == ("orders", state(store)[1])


def test_what_is_resumed_at_that_moment_is_not_canceled(store: ProgressStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = create(store)
    Changefeeds(store).pause("orders", "maintenance")
    seen = store.claims.overview()
    Changefeeds(store).resume("orders")
    monkeypatch.setattr(store.claims, "overview", lambda: seen)
    assert RetentionLimit(store).enforce(now + 97 * HOUR_S) == []
    assert state(store)[0] == "running"


@pytest.mark.parametrize("ended", ["paused", "failed"])
def test_a_job_that_rests_for_an_error_may_hold_back_four_days(
    store: ProgressStore, ended: Literal["paused", "failed"]
) -> None:
    now = create(store)
    one = store.nodes.join(NODE, lease_s=1_000 * HOUR_S)
    assert store.claims.adopt("orders", one) is not None
    assert store.claims.settle("orders", one, ended, "no") == ended
    assert RetentionLimit(store).enforce(now + 95 * HOUR_S) == []
    assert RetentionLimit(store).enforce(now + 97 * HOUR_S) == ["orders"]


@pytest.mark.parametrize("claims", [True, False])
def test_a_running_job_has_no_limit_by_default(store: ProgressStore, claims: bool) -> None:
    now = create(store)
    if claims:
        claimed(store)
    assert RetentionLimit(store).enforce(now + 1_000 * HOUR_S) == []


def test_without_a_limit_nothing_is_canceled(store: ProgressStore) -> None:
    now = create(store, gc_protect_expires_after="0s")
    Changefeeds(store).pause("orders", "maintenance")
    assert RetentionLimit(store).enforce(now + 1_000 * HOUR_S) == []


def test_a_warning_comes_once_an_hour_and_says_when_the_job_is_canceled(
    store: ProgressStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    now = store.claims.overview().now
    create(store, marked_at=now - 30, gc_protect_expires_after="4d")  # no age is a whole number of minutes
    limit = RetentionLimit(store)
    for later_s, warnings in (
        (WARN_AFTER_S - 31, 0),
        (WARN_AFTER_S + POLL_INTERVAL_S, 1),
        (WARN_AFTER_S + 2 * POLL_INTERVAL_S, 1),
        (WARN_AFTER_S + 3 * POLL_INTERVAL_S + WARN_EVERY_S, 2),
    ):
        assert limit.enforce(now + later_s) == []
        assert len(caplog.records) == warnings
    assert caplog.messages[0].startswith("job 'orders' has retained history at its source for 24 h 1 min: ")
    assert caplog.messages[0].endswith("otherwise it is canceled in 71 h 58 min")
    assert state(store)[0] == "running"


def test_a_short_limit_is_announced_at_its_half(store: ProgressStore, caplog: pytest.LogCaptureFixture) -> None:
    now = create(store, gc_protect_expires_after="2h")
    assert RetentionLimit(store).enforce(now + 1.1 * HOUR_S) == []
    assert "otherwise it is canceled in 53 min" in caplog.text


def test_the_store_is_read_at_most_once_a_minute(store: ProgressStore) -> None:
    now = create(store)
    limit = RetentionLimit(store)
    limit.enforce(now)
    statements: list[str] = []
    sa.event.listen(store._database._opened(), "before_cursor_execute", lambda *args: statements.append(args[2]))
    limit.enforce(now + POLL_INTERVAL_S - 1)
    assert statements == []
    limit.enforce(now + POLL_INTERVAL_S)
    assert statements


def test_an_option_that_this_node_cannot_read_cancels_nothing(
    store: ProgressStore, caplog: pytest.LogCaptureFixture
) -> None:
    now = create(store, gc_protect_expires_after="${LONGEST}")
    assert RetentionLimit(store).enforce(now + 100 * HOUR_S) == []
    assert "needs the environment variable 'LONGEST', which is not set" in caplog.text
    assert state(store)[0] == "running"


def test_the_option_is_parsed_as_everywhere(store: ProgressStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGEST", "1h30m")
    create(store)
    (job,) = store.jobs.all()
    assert expires_after(job, definition(gc_protect_expires_after="${LONGEST}")) == (True, 5_400)
    with pytest.raises(ConfigError, match=r"'gc_protect_expires_after' must be at least 1m"):
        expires_after(job, definition(gc_protect_expires_after="59s"))


def test_a_report_says_what_a_job_holds_back(store: ProgressStore) -> None:
    now = store.claims.overview().now
    create(store, marked_at=now - 90)
    store.changefeeds.register("users", DEFINITION)
    orders, users = (
        report(store, known, now=datetime.fromtimestamp(now, UTC)).to_json()["protected_age_s"]
        for known in store.changefeeds.all()
    )
    assert orders == pytest.approx(90, abs=0.001)
    assert users is None, "it is not a job"
    one = store.nodes.join(NODE, lease_s=60)
    assert store.claims.adopt("orders", one) is not None
    assert store.claims.settle("orders", one, "succeeded") == "succeeded"
    assert report(store, store.changefeeds.all()[0], now=datetime.fromtimestamp(now, UTC)).protected_age_s is None
    with store._database.transaction() as connection:
        connection.execute(sa.update(JOBS).values(state="revert-failed"))
    assert report(store, store.changefeeds.all()[0], now=datetime.fromtimestamp(now, UTC)).protected_age_s is not None
