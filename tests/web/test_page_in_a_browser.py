"""The page in Chromium: each view and each action, without a complaint, and open to everybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
from cdc_testing import scripted
from cdc_testing.chromium import Watched, chromium, find_chromium
from cdc_testing.components import plugin, source_of
from cdc_testing.page_rig import HOSTILE, Shown, deployment, served
from playwright.sync_api import Browser, Page, Route, expect

from cdc_core.plugins.entry_points import PLUGINS, published
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is missing; .ci/chromium installs it"),
]

VIEWS = (
    "/ui",
    "/ui?q=stock",
    "/ui/changefeeds/eu-shipments",
    "/ui/changefeeds/eu-carts",
    "/ui/changefeeds/eu-orders/cancel",
    "/ui/changefeeds/eu-orders/alter",
    "/ui/changefeeds/eu-shipments/dead-letters/1",
    "/ui/changefeeds/eu-shipments/replay",
    "/ui/nodes",
    "/ui/nodes/ada/drain",
    "/ui/plugins",
    "/ui/new?name=shop&sink=kafka://broker:9092&max_step_rows=many",
    "/ui/login",
)

IN_BOTH_THEMES = tuple(view for view in VIEWS if view in ("/ui", "/ui/changefeeds/eu-carts") or "/new" in view)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    store = ProgressStore(store_url(tmp_path_factory.mktemp("page")))
    shown = Shown(store)
    shown.many(12)
    yield shown
    store.close()


@pytest.fixture(scope="module")
def url(shown: Shown) -> Iterator[str]:
    ours = plugin(scripted.COUNTER, scripted.PLAIN, scripted.JOURNAL)
    installed = [claim for claims in published(PLUGINS).values() for claim in claims]
    plugins = PluginHost([*installed, source_of(ours, "cdc-paper")])
    with served(deployment(shown.store, plugins)) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[Watched]:
    """A page that must have no complaint at the end."""
    watched = Watched(browser, url)
    yield watched
    watched.close()
    assert watched.complaints == []


def state(shown: Shown, name: str) -> str:
    job = shown.store.jobs.find(name)
    assert job is not None
    return job.state


@pytest.mark.parametrize(("theme", "views"), [("light", VIEWS), ("dark", IN_BOTH_THEMES)])
def test_every_view_opens_without_a_complaint_and_without_a_barrier(
    browser: Browser, url: str, theme: Literal["dark", "light"], views: Sequence[str]
) -> None:
    watched, barriers = Watched(browser, url, theme), []
    for view in views:
        page = watched.open(view)
        page.evaluate(
            "Array.from(document.querySelectorAll('details')).slice(0, 2).forEach((each) => each.open = true)"
        )
        barriers += watched.barriers()
    watched.close()
    assert barriers == []
    assert watched.complaints == []


def test_what_has_changed_is_put_in_place_without_touching_the_rest(watched: Watched, shown: Shown) -> None:
    page = watched.open("/ui")
    page.evaluate("document.getElementById('feed-eu-orders').untouched = true")
    page.locator("#q").fill("half a wor")
    shown.step("eu-orders", rows=1_000_000)
    expect(page.locator("#feed-eu-orders")).to_contain_text("1,000,0")
    assert page.evaluate("document.getElementById('feed-eu-orders').untouched") is True
    assert page.locator("#q").input_value() == "half a wor"
    shown.job("eu-newcomer")
    expect(page.locator("#feed-eu-newcomer")).to_be_visible()


def test_a_line_without_news_is_not_touched_and_no_line_is_replaced(watched: Watched, shown: Shown) -> None:
    shown.job("eu-archive")
    shown.store.claims.settle("eu-archive", shown.nodes["ada"], "succeeded")
    page = watched.open("/ui?q=archive")
    expect(page.locator("#feed-eu-archive")).to_contain_text("nothing was delivered recently")
    watched.note_touched()
    watched.open("/ui")
    for rows in (3_000_000, 5_000_000):
        shown.step("eu-orders", rows=rows)
        expect(page.locator("#feed-eu-orders")).to_contain_text(f"{shown.rows['eu-orders']:,.0f}")
    lines, replaced = watched.touched()
    assert "feed-eu-orders" in lines
    assert "feed-eu-archive" not in lines
    assert replaced == 0


def test_charts_are_drawn_and_go_on(watched: Watched, shown: Shown) -> None:
    page = watched.open("/ui/changefeeds/eu-orders")
    expect(page.locator(".chart canvas")).to_have_count(4)
    before = page.locator("#readings").inner_text()
    shown.step("eu-orders", rows=5_000_000, lag_s=77)
    expect(page.locator("#readings")).to_contain_text("1 min 1")
    assert page.locator("#readings").inner_text() != before


@pytest.mark.parametrize("width", [400, 1000, 1400])
def test_nothing_overflows_and_each_chart_is_below_its_heading(
    browser: Browser, url: str, shown: Shown, width: int
) -> None:
    shown.step("eu-orders", rows=1, waiting_for="the broker refuses: " + "x" * 300)
    watched = Watched(browser, url, size=(width, 900))
    for view in ("/ui", "/ui/nodes", "/ui/changefeeds/eu-orders", "/ui/new?name=shop&sink=kafka://broker:9092"):
        page = watched.open(view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    page = watched.open("/ui/changefeeds/eu-orders")
    expect(page.locator(".chart canvas")).to_have_count(4)
    for number in range(4):
        heading, chart = (page.locator(place).nth(number).bounding_box() for place in (".reading", ".chart"))
        assert heading is not None
        assert chart is not None
        assert abs(heading["x"] - chart["x"]) < 2
        assert abs(heading["y"] + heading["height"] - chart["y"]) < 2
    page = watched.open("/ui")
    note = page.locator("#feed-eu-orders .note").bounding_box()
    assert note is not None
    assert note["x"] + note["width"] <= width
    watched.close()
    assert watched.complaints == []


def test_a_page_that_was_refused_its_stream_and_points_draws_charts_and_asks_again(browser: Browser, url: str) -> None:
    watched = Watched(browser, url)
    page, refused = watched.page, []

    def refuse_once(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=503)

    page.clock.install()
    page.route("**/live", refuse_once, times=1)
    page.route("**/points", lambda route: route.abort())
    page.goto("/ui/changefeeds/eu-orders")
    expect(page.locator("[data-live]")).to_have_text("connection lost")
    expect(page.locator(".chart canvas")).to_have_count(4)
    page.clock.fast_forward(5000)
    expect(page.locator("[data-live]")).to_have_text("live")
    assert len(refused) == 1
    watched.close()


def test_text_that_looks_like_a_script_stays_text(watched: Watched, shown: Shown) -> None:
    shown.step("eu-prices", rows=1, letters=1, waiting_on=HOSTILE, waiting_for=HOSTILE)
    page = watched.open("/ui/changefeeds/eu-prices")
    expect(page.locator("#strip")).to_contain_text("<script>")
    expect(page).to_have_title("eu-prices · cdc")


def test_each_action_is_done_after_a_question(watched: Watched, shown: Shown) -> None:
    page = watched.page
    for action, after in (("Restart", "pause-requested"), ("Cancel", "cancel-requested")):
        name = {"Restart": "eu-stock", "Cancel": "us-orders"}[action]
        watched.open(f"/ui/changefeeds/{name}")
        page.get_by_role("link", name=action).click()
        page.get_by_role("button", name=action).click()
        expect(page.locator(".banner.good")).to_contain_text("The changefeed will be")
        assert state(shown, name) == after
    watched.open("/ui/changefeeds/eu-customers")
    page.get_by_role("link", name="Pause").click()
    page.get_by_label("Reason").fill("a move")
    page.keyboard.press("Enter")
    expect(page.locator("#head")).to_contain_text("a move")
    watched.open("/ui/changefeeds/eu-carts")
    page.get_by_role("link", name="Resume").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#head .state")).to_have_text("running")
    watched.open("/ui/nodes")
    page.get_by_role("link", name="Drain bob").click()
    page.get_by_role("button", name="Drain bob").click()
    expect(page.locator("#nodes")).to_contain_text("draining")


def test_a_changefeed_is_created_from_a_form_that_checks_as_it_is_filled_in(
    watched: Watched, shown: Shown, tmp_path: Path
) -> None:
    page = watched.open("/ui")
    page.get_by_role("link", name="New changefeed").click()
    page.locator("#i-f-name").press_sequentially("counted")
    page.locator("#i-f-source").fill("counter://host/shop")
    page.locator("#i-f-tables").fill("counter")
    page.locator("#i-f-sink").fill("journal://")
    page.locator("#i-f-format").select_option("plain")
    page.locator("#i-f-control").fill(str(tmp_path))
    page.locator("#o-errors-and-retries > summary").click()
    page.locator("#i-f-max_attempts").press_sequentially("often")
    expect(page.locator("#f-max_attempts")).to_contain_text("must be a whole number")
    expect(page.locator("#i-f-max_attempts")).to_be_focused()
    page.locator("#i-f-max_attempts").fill("3")
    expect(page.locator("#verdict")).to_contain_text("All options are valid")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("counted")
    assert state(shown, "counted") == "running"


def test_the_form_and_its_file_are_kept_in_step(watched: Watched) -> None:
    page = watched.open("/ui/new?name=counted")
    page.get_by_text("As a file").click()
    text = page.locator("#text")
    expect(text).to_have_value("[changefeed.counted]\n")
    page.locator("#i-f-sink").fill("journal://")
    expect(text).to_have_value('[changefeed.counted]\nsink = "journal://"\n')
    text.fill("[changefeed.pasted]\nsink = 'journal://'\n[changefeed.pasted.options]\nmax_attempts = 3\n")
    expect(page.locator("#i-f-name")).to_have_value("pasted")
    expect(page.locator("#i-f-max_attempts")).to_be_visible()
    expect(page.locator("#i-f-max_attempts")).to_have_value("3")
    expect(text).to_be_focused()
    text.press_sequentially("oops")
    expect(page.locator("#text-problem")).to_contain_text("the text: ")
    expect(page.locator("#i-f-name")).to_have_value("pasted")
    broken = text.input_value()
    fill_and_wait(page, "8")
    expect(text).to_have_value(broken)
    expect(page.locator("#text-problem")).to_contain_text("the text: ")
    assert watched.complaints == []
    page.route("**/ui/new/text", lambda route: route.abort(), times=1)
    with page.expect_event("requestfailed"):
        text.fill("[changefeed.lost]\n")
    fill_and_wait(page, "9")
    expect(text).to_have_value("[changefeed.lost]\n")
    watched.complaints.clear()  # of the request that failed
    text.fill("[changefeed.pasted]\nsink = 'journal://'\n[changefeed.pasted.options]\nmax_attempts = 5\n")
    expect(page.locator("#i-f-max_attempts")).to_have_value("5")
    expect(page.locator("#text-problem")).to_be_empty()
    page.locator("#i-f-max_attempts").fill("4")
    expect(text).to_have_value(
        '[changefeed.pasted]\nsink = "journal://"\n\n[changefeed.pasted.options]\nmax_attempts = 4\n'
    )
    expect(page.locator("#text-problem")).to_be_empty()


def fill_and_wait(page: Page, attempts: str) -> None:
    """Fill in a field of the form, and wait until the server's answer is in the page."""
    with page.expect_response("**/ui/new/validate"):
        page.locator("#i-f-max_attempts").fill(attempts)
    expect(page.locator("form.new.htmx-request")).to_have_count(0)


def test_the_keyboard_leads_past_the_menu_and_to_every_line(watched: Watched) -> None:
    page = watched.open("/ui")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.get_by_role("link", name="eu-returns").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_title("eu-returns · cdc")
