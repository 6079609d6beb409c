"""The page as people without scripts get it: each view, each action, and nothing in it that could run."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from cdc_testing.browsing import Answer, Browser
from cdc_testing.page_rig import HOSTILE, Shown, deployment, served
from cdc_testing.stored import DEFINITION, dropped, node, progress

from cdc_core import Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.store.progress import DeadLetter, ProgressStore, store_url
from cdc_core.store.tables import MOMENTS
from cdc_core.store.traced_change import TracedChange
from cdc_core.web.access.callers import token_hash
from cdc_core.web.page.texts import FOR_ADMINS


@pytest.fixture
def shown(store: ProgressStore) -> Shown:
    shown = Shown(store)
    shown.job("orders")
    shown.step("orders", rows=1234)
    return shown


@pytest.fixture
def browser(shown: Shown) -> Iterator[Browser]:
    with served(deployment(shown.store)) as server:
        yield Browser(server.address.port)


@pytest.fixture
def guarded(shown: Shown, tmp_path: Path) -> Iterator[Browser]:
    """A server that wants tokens: `view`, `operate` and `admin` have those roles."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{role} {role} {token_hash(role)}\n" for role in ("view", "operate", "admin")))
    with served(deployment(shown.store), tokens=str(tokens)) as server:
        yield Browser(server.address.port)


def state(store: ProgressStore, name: str = "orders") -> str:
    job = store.jobs.find(name)
    assert job is not None
    return job.state


def stream(browser: Browser, path: str, *, until: Callable[[str], bool]) -> str:
    """Return what a stream sends until that is enough."""
    connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=30)
    connection.request("GET", path)
    answer, found = connection.getresponse(), ""
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    while not until(found):
        found += answer.readline().decode()
    connection.close()
    return found


def signed_in(browser: Browser, token: str) -> Answer:
    return browser.post("/ui/login", token=token, next="/ui/nodes")


def test_the_overview_lists_each_changefeed_with_state_rows_and_way(browser: Browser) -> None:
    text = browser.get("/ui").page.text
    assert "orders running" in text
    assert "1,234" in text
    assert "postgresql://db.example:5432/shop → json → kafka://broker-1:9092" in text


def test_the_overview_can_be_narrowed_by_text_and_state(browser: Browser, shown: Shown) -> None:
    shown.job("stock", sink="s3://lake/shop")
    Changefeeds(shown.store).set_owner("stock", "bea")
    found = browser.get("/ui?q=lake").body
    assert 'id="feed-stock"' in found
    assert 'id="feed-orders"' not in found
    assert "No changefeed matches." in browser.get("/ui?tone=bad").page.text
    assert re.findall('id="feed-(.*?)"', browser.get("/ui?q=bea").body) == ["stock"]


def test_the_overview_is_in_the_order_that_is_chosen_and_the_search_keeps_it(browser: Browser, shown: Shown) -> None:
    for name, rows in (("stock", 70), ("carts", 7000)):
        shown.job(name)
        shown.step(name, rows=rows, lag_s=rows)
    assert re.findall('id="feed-(.*?)"', browser.get("/ui").body) == ["carts", "orders", "stock"]
    answer = browser.get("/ui?sort=rows&tone=good")
    assert re.findall('id="feed-(.*?)"', answer.body) == ["carts", "orders", "stock"]
    assert {"/ui?tone=good&sort=lag", "/ui?tone=good"} <= set(answer.page.links)
    assert answer.page.forms[0].fields["sort"] == "rows"
    assert re.findall('id="feed-(.*?)"', browser.get("/ui?sort=lag").body) == ["carts", "stock", "orders"]


def test_what_an_error_paused_and_what_no_node_runs_are_told_from_the_rest(browser: Browser, shown: Shown) -> None:
    shown.job("idle", on=None)
    shown.store.claims.settle("orders", shown.nodes["ada"], "paused", "the topic is gone")
    text = browser.get("/ui").page.text
    assert "waiting for a node" in text
    assert 'class="state bad">paused' in browser.get("/ui?tone=bad").body


def test_the_overview_of_an_empty_store_says_so(tmp_path: Path) -> None:
    empty = ProgressStore(store_url(tmp_path))
    empty.open()
    with served(deployment(empty)) as server:
        assert "There are no changefeeds in the store yet." in Browser(server.address.port).get("/ui").page.text
    empty.close()


def test_one_changefeed_shows_its_strip_measurements_spans_history_and_definition(browser: Browser) -> None:
    text = browser.get("/ui/changefeeds/orders").page.text
    for wanted in (
        *("source", "encoder", "sink", "waits for changes", "Oldest row not yet delivered: at most"),
        *("Latency from commit", "Retained log 50.4 MB", "shop.public.customers all keys", "adopted"),
        *("options.resolved 1s", "There are no dead letters."),
    ):
        assert wanted in text, wanted


def test_secrets_are_references_or_masked_in_the_definition(browser: Browser, store: ProgressStore) -> None:
    old = {**DEFINITION, "source": "postgresql://ann:hunter2@host/shop", "sink": "webhook-https://x/?token=hunter2"}
    store.jobs.create("old", old, owner="ann", locality=Locality())
    assert "postgresql://cdc:${SHOP_PASSWORD}@db.example" in browser.get("/ui/changefeeds/orders").page.text
    assert "hunter2" not in "".join(
        browser.get(path).body for path in ("/ui", "/ui/changefeeds/old", "/ui/changefeeds/old/alter")
    )


def test_a_changefeed_that_waits_for_its_sink_says_so_at_the_sink(browser: Browser, shown: Shown) -> None:
    shown.step("orders", rows=0, waiting_on="sink 'kafka'", waiting_for="the broker does not answer")
    text = browser.get("/ui/changefeeds/orders").page.text
    assert "kafka://broker-1:9092 waits for sink 'kafka': the broker does not answer" in text


def test_an_unknown_changefeed_is_a_page_with_status_404(browser: Browser) -> None:
    answer = browser.get("/ui/changefeeds/nothing")
    assert answer.status == 404
    assert "there is no changefeed 'nothing'" in answer.page.text


def test_whatever_has_markup_is_shown_and_not_obeyed(browser: Browser, shown: Shown) -> None:
    store = shown.store
    store.changefeeds.register(HOSTILE, {**DEFINITION, "tables": [HOSTILE], "sink": f"file://{HOSTILE}"})
    shown.step("orders", rows=0, letters=1, waiting_on=HOSTILE, waiting_for=HOSTILE, notice=HOSTILE)
    Changefeeds(store).pause("orders", HOSTILE)
    pages = ["/ui", "/ui?q=" + "%3Cscript%3E", "/ui/nodes", "/ui/changefeeds/orders", "/ui/changefeeds/%3Cscript%3E"]
    pages += ["/ui/login?next=%22%3E%3Cscript%3E", "/ui/changefeeds/orders/cancel"]
    for path in pages:
        answer = browser.get(path)
        assert answer.page.active == [], path
        assert "<script>" not in answer.body, path
    assert HOSTILE in " ".join(browser.get("/ui").page.texts)
    assert HOSTILE in " ".join(browser.get("/ui/changefeeds/orders").page.texts)
    assert "<script>" not in stream(browser, "/ui/live", until=lambda sent: "feed-orders" in sent)
    sent = stream(browser, "/ui/changefeeds/orders/live", until=lambda sent: "event: point" in sent)
    assert "&lt;script&gt;" in sent


def test_every_answer_forbids_what_is_not_of_this_server(browser: Browser) -> None:
    for path in ("/ui", "/ui/changefeeds/orders", "/ui/changefeeds/none", "/ui/static/page.css", "/ui/static/none"):
        policy = browser.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_static_files_are_those_of_the_package_and_no_others(browser: Browser) -> None:
    answer = browser.get("/ui/static/vendor/uPlot.min.css")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/css")
    assert (
        browser.get(
            "/ui/static/page.css", **{"If-None-Match": browser.get("/ui/static/page.css").headers["etag"]}
        ).status
        == 304
    )
    code = "entrance.py"
    for path in (f"/ui/static/../{code}", f"/ui/static/%2e%2e/{code}", "/ui/static/vendor", "/ui/static/x"):
        assert browser.get(path).status in (400, 404), path


@pytest.mark.parametrize(
    ("action", "after", "said"),
    [
        ("pause", "pause-requested", "The changefeed will be paused."),
        ("restart", "pause-requested", "The changefeed will be restarted."),
        ("cancel", "cancel-requested", "The changefeed will be canceled."),
    ],
)
def test_an_action_is_confirmed_on_a_page_and_then_asked_for(
    browser: Browser, store: ProgressStore, action: str, after: str, said: str
) -> None:
    assert f"/ui/changefeeds/orders/{action}" in browser.get("/ui/changefeeds/orders").page.links
    [form] = browser.get(f"/ui/changefeeds/orders/{action}").page.forms
    assert state(store) == "running"
    answer = browser.post(form.target, **{**form.fields, "reason": "for a test"})
    assert answer.status == 303
    assert state(store) == after
    text = browser.get(answer.headers["location"]).page.text
    assert said in text
    assert action == "restart" or "for a test" in text


def test_an_action_that_cannot_be_done_is_shown_again_with_the_reason(browser: Browser, shown: Shown) -> None:
    shown.store.claims.settle("orders", shown.nodes["ada"], "succeeded")
    answer = browser.post("/ui/changefeeds/orders/pause", reason="no")
    assert answer.status == 409
    assert "has ended" in answer.page.text
    assert [form.target for form in answer.page.forms] == ["/ui/changefeeds/orders/pause"]


def test_a_run_that_is_resumed_twice_is_not_paused_the_second_time(browser: Browser, store: ProgressStore) -> None:
    store.changefeeds.register("old", DEFINITION)
    store.claims.pause_run("old", store.changefeeds.begin_attempt("old"), "no route")
    assert browser.post("/ui/changefeeds/old/resume").status == 303
    again = browser.post("/ui/changefeeds/old/resume")
    assert (again.status, "changefeed 'old' is not paused" in again.page.text) == (409, True)


def test_a_run_is_resumed_before_its_pause_took_effect(browser: Browser, store: ProgressStore) -> None:
    store.changefeeds.register("old", DEFINITION)
    store.statuses.save("old", store.changefeeds.begin_attempt("old"), {"phase": "running"})
    Changefeeds(store).pause("old", "lunch")
    page = browser.get("/ui/changefeeds/old").page
    assert "pause-requested lunch" in page.text
    assert "/ui/changefeeds/old/resume" in page.links
    assert browser.post("/ui/changefeeds/old/resume").status == 303


def test_nodes_are_shown_with_locality_and_jobs_and_can_be_drained(browser: Browser, store: ProgressStore) -> None:
    page = browser.get("/ui/nodes").page
    assert "ada alive region=eu-west-1 zone=a 1 of 9 orders" in page.text
    [form] = browser.get("/ui/nodes/ada/drain").page.forms
    assert browser.post(form.target).headers["location"] == "/ui/nodes?done=drain"
    assert [node.draining for node in store.nodes.living() if node.name == "ada"] == [True]
    assert browser.post("/ui/nodes/nobody/drain").status == 409


def test_nodes_are_shown_with_their_part_in_the_cluster(browser: Browser, shown: Shown) -> None:
    bea = shown.store.nodes.join(replace(node("bea"), cores=2, master="10.0.0.1:7077"), lease_s=60)
    shown.store.cluster.poll(bea)
    shown.store.nodes.renew(bea.node_id, lease_s=60, problems={"users": "no sink 'kafka'"})
    shown.step("orders", rows=0, slices={"10.0.0.1": 3})
    text = browser.get("/ui/nodes").page.text
    assert "1 of 9 orders none none everybody" in text
    assert "bea alive leads the cluster none 0 of 9 cannot run job 'users': no sink 'kafka' 2, 0 used orders" in text


def test_plugins_are_shown_with_their_options(browser: Browser) -> None:
    text = browser.get("/ui/plugins").page.text
    assert "kafka://" in text
    assert "compression" in text


def test_a_stream_sends_every_part_once_and_then_only_what_has_changed(browser: Browser) -> None:
    def is_complete(sent: str) -> bool:
        return sent.count("event: point") == 3

    first, *later = stream(browser, "/ui/changefeeds/orders/live", until=is_complete).split("event: point")
    for part in ("head", "strip", "readings", "facts", "spans", "events", "letters", "traces"):
        assert f'id="{part}"' in first
    assert 'id="strip"' in "".join(later)  # the oldest row has become older
    assert 'id="events"' not in "".join(later)


def test_the_stream_of_the_overview_sends_lines_and_all_of_them_when_one_comes(browser: Browser, shown: Shown) -> None:
    added = False

    def is_complete(sent: str) -> bool:
        nonlocal added
        if not added and 'id="feed-orders"' in sent:
            shown.job("stock")
            added = True
        return sent.count('id="feed-stock"') == 1

    sent = stream(browser, "/ui/live", until=is_complete)
    assert sent.count('id="feeds"') == 2


def test_the_stream_of_a_changefeed_that_is_dropped_says_so_and_goes_on(browser: Browser, store: ProgressStore) -> None:
    store.changefeeds.register("old", DEFINITION)
    is_dropped = False

    def is_complete(sent: str) -> bool:
        nonlocal is_dropped
        if not is_dropped and "event: point" in sent:
            dropped(store, "old")
            is_dropped = True
        return "there is no changefeed" in sent

    assert 'id="connection"' in stream(browser, "/ui/changefeeds/old/live", until=is_complete)


def test_what_needs_a_job_is_not_offered_for_other_changefeeds(browser: Browser, shown: Shown) -> None:
    store = shown.store
    shown.step("orders", rows=0, letters=1)
    epoch = store.changefeeds.begin_attempt(store.changefeeds.register("old", DEFINITION).name)
    refused = [DeadLetter(table="t", key="[1]", updated=Timestamp(1), stage="sink", error="no")]
    store.progress.save("old", epoch, progress(), dead_letters=refused)
    assert browser.get("/ui").page.text.count("cdc run") == 1
    asked = browser.post("/ui/changefeeds/old/cancel", reason="no use")
    assert (asked.status, "stop the run, and then use `cdc drop old --store DIR|URL`" in asked.page.text) == (409, True)
    for name, is_offered in (("orders", True), ("old", False)):
        start, [letter] = f"/ui/changefeeds/{name}", store.dead_letters.of(name)
        of_letter = f"{start}/dead-letters/{letter.number}"
        one, all_of_it = browser.get(of_letter).page, browser.get(start).page
        assert of_letter in all_of_it.links
        assert (f"{start}/replay" in all_of_it.links) is is_offered
        assert (f"{start}/preview" in [form.target for form in all_of_it.forms]) is is_offered
        assert ({f"{start}/replay", f"{of_letter}/discard"} <= set(one.links)) is is_offered
        sent = stream(browser, f"{start}/live", until=lambda sent: "event: point" in sent)
        assert (f"{start}/replay" in sent) is is_offered


def test_changes_are_traced_from_a_form(browser: Browser, store: ProgressStore) -> None:
    page = "/ui/changefeeds/orders"
    for wrong, reason in (
        ({"key": "[7]", "rows": "1"}, "'key' requires 'table'"),
        ({"table": "nope", "rows": "1"}, "has no table 'nope'"),
        ({"table": "orders", "key": "7", "rows": "1"}, "'7' is not a JSON array"),
        ({"table": "orders", "key": "[NaN]", "rows": "1"}, "'[NaN]' is not a JSON array"),
        ({"table": "orders", "key": "[" * 5000, "rows": "1"}, "is not a JSON array"),
        ({"rows": "many"}, "from 1 to 100"),
    ):
        answer = browser.post(f"{page}/traces", **wrong)
        assert (answer.status, reason in answer.page.text) == (400, True), reason
    assert "No changes are being traced." in browser.get(page).page.text
    answer = browser.post(f"{page}/traces", table="orders", key=' ["<b>"] ', rows="2")
    assert answer.headers["location"] == f"{page}?done=trace#traces"
    (trace,) = store.traces.of("orders")
    change = {"table": "shop.public.orders", "key": '["<b>"]', "op": "update", "updated": "1000000000.0000000000"}
    change |= {"position": None, "step": 3, "planned": 1.5, "read": 1.75, "marks": False, "place": {"offset": 7}}
    refused = change | {"key": "[8]", "dead_letter": "sink", "saved": 2.0}
    store.traces.put(
        trace.number, [*map(TracedChange.from_json, (change, refused, change | {"nth": 1, "left_out": True}))]
    )
    text = browser.get(page).page.text
    assert 'orders ["<b>"] active until' in text
    assert "2 of at most 2 changes" in text
    assert "00:00:01.0 +0.500 +0.750 – – – – – offset 7, waits for the next stage" in text
    assert "among the dead letters (sink), offset 7" in text
    assert f"End trace {trace.number}" in text
    assert browser.post(f"{page}/traces/{trace.number}/end").headers["location"] == f"{page}?done=end-trace#traces"
    assert store.traces.of("orders") == []
    assert browser.post(f"{page}/traces/{trace.number}/end").status == 404


def test_no_level_of_headings_is_left_out(browser: Browser) -> None:
    levels = [int(level) for level in re.findall(r"<h([1-6])[ >]", browser.get("/ui/changefeeds/orders").body)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_charts_have_the_points_of_everybody_who_looked(browser: Browser) -> None:
    browser.get("/ui")
    columns = json.loads(browser.get("/ui/changefeeds/orders/points").body)
    assert [len(column) for column in columns] == [len(columns[0])] * 7
    assert len(columns[0]) >= 1


def test_charts_have_a_day_of_minutes_in_which_nobody_looked_and_gaps_where_it_did_not_run(
    browser: Browser, store: ProgressStore
) -> None:
    now = int(time.time())
    kept = [(7200, 100), (7140, 700), (240, 5000), (180, 5600), (120, 6200)]
    with store._database.transaction() as connection:
        for ago, rows in kept:
            counted = json.dumps([now - ago, rows, 2.5, 7.0, rows])
            connection.execute(sa.insert(MOMENTS).values(name="orders", minute=(now - ago) // 60, counted=counted))
    browser.get("/ui")
    at, lags, rates, half, *_, retained = json.loads(browser.get("/ui/changefeeds/orders/points").body)
    assert [now - each for each in at[:6]] == [7200, 7140, 3690, 240, 180, 120]
    assert lags[:6] == [2.5, 2.5, None, 2.5, 2.5, 2.5]
    assert rates[:6] == [None, 10, None, None, 10, 10]
    assert [each is None for each in half[:6]] == [True, False, True, True, False, False]
    assert retained[:6] == [7, 7, None, 7, 7, 7]
    assert at[-1] >= now


def test_whoever_has_not_signed_in_is_asked_to(guarded: Browser) -> None:
    answer = guarded.get("/ui/nodes?x=1")
    assert answer.status == 303
    assert answer.headers["location"] == "/ui/login?next=%2Fui%2Fnodes%3Fx%3D1"
    assert "Sign in" in guarded.get(answer.headers["location"]).page.text
    assert guarded.get("/ui/static/page.css").status == 200


def test_a_form_that_is_checked_while_nobody_is_signed_in_gets_no_page_to_sign_in(guarded: Browser) -> None:
    assert guarded.get("/ui/nodes", **{"HX-Request": "true"}).status == 401


def test_a_token_signs_in_and_signing_out_ends_that(guarded: Browser) -> None:
    wrong = signed_in(guarded, "nonsense")
    assert wrong.status == 401
    assert "Unknown token." in wrong.page.text
    answer = signed_in(guarded, "view")
    assert answer.headers["location"] == "/ui/nodes"
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert guarded.get("/ui/nodes").status == 200
    guarded.post("/ui/logout")
    assert guarded.get("/ui/nodes").status == 303


def test_who_cannot_sign_in_as_the_tokens_cannot_be_read_is_told_so(guarded: Browser, tmp_path: Path) -> None:
    (tmp_path / "tokens").unlink()
    assert guarded.get("/ui/login").status == 200
    answer = signed_in(guarded, "view")
    assert (answer.status, "cannot be read; the server" in answer.page.text) == (503, True)


def test_a_role_is_offered_what_it_may_do_and_no_more(guarded: Browser, store: ProgressStore) -> None:
    number = store.traces.ask("orders", table=None, key=None, most=1, seconds=60)
    signed_in(guarded, "view")
    assert "/ui/changefeeds/orders/pause" not in guarded.get("/ui/changefeeds/orders").page.links
    assert f"End trace {number}" not in guarded.get("/ui/changefeeds/orders").page.text
    assert guarded.post("/ui/changefeeds/orders/pause").status == 403
    assert guarded.post(f"/ui/changefeeds/orders/traces/{number}/end").status == 403
    signed_in(guarded, "operate")
    assert f"End trace {number}" in guarded.get("/ui/changefeeds/orders").page.text
    links = guarded.get("/ui/changefeeds/orders").page.links
    assert "/ui/changefeeds/orders/pause" in links
    for action in FOR_ADMINS:
        assert f"/ui/changefeeds/orders/{action}" not in links
        assert guarded.post(f"/ui/changefeeds/orders/{action}").status == 403
    assert guarded.post("/ui/nodes/ada/drain").status == 403
    assert state(store) == "running"
    signed_in(guarded, "admin")
    assert guarded.post("/ui/changefeeds/orders/cancel").status == 303
