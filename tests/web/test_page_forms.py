"""The page's form of a new changefeed, its dead letters and its previews: with a source and a sink that take orders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from cdc_testing import scripted
from cdc_testing.browsing import Answer, Browser
from cdc_testing.components import plugin, source_of
from cdc_testing.documented_role import documented
from cdc_testing.local_engine import LocalEngine
from cdc_testing.page_rig import HOSTILE, deployment, served
from cdc_testing.scripted import Script

from cdc_core import Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.config.definition import changefeed_of
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.masking import uri_secrets
from cdc_core.plugins.entry_points import PLUGINS, published
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore
from cdc_core.web.page import views

TABLE = "counter"


@pytest.fixture(scope="module")
def plugins() -> PluginHost:
    """The scripted source and sink beside what is installed."""
    ours = plugin(scripted.COUNTER, scripted.PLAIN, scripted.JOURNAL)
    installed = [claim for claims in published(PLUGINS).values() for claim in claims]
    return PluginHost([*installed, source_of(ours, "cdc-paper")])


@pytest.fixture
def browser(store: ProgressStore, plugins: PluginHost) -> Iterator[Browser]:
    with served(deployment(store, plugins, PW="hunter2-of-the-source")) as server:
        yield Browser(server.address.port)


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, str]:
    """A form that can be obeyed."""
    return {
        "name": "orders",
        "source": "counter://reader:${PW}@host/shop",
        "tables": TABLE,
        "sink": "journal://",
        "format": "plain",
        "control": str(tmp_path),
        "total": "40",
        "rows_per_step": "20",
        "keys": "10",
    }


def test_the_form_offers_the_options_of_what_is_chosen(browser: Browser) -> None:
    empty = fields_in(browser.get("/ui/new"))
    assert {"name", "source", "sink", "format", "envelope", "max_step_rows"} <= set(empty)
    assert "topic_prefix" not in empty
    chosen = browser.post("/ui/new/validate", sink="kafka://broker:9092", source="postgresql://u@h/d")
    offered = fields_in(chosen)
    assert {"topic_prefix", "kafka_sink_config", "slot_name", "scan_chunk_size"} <= set(offered)
    assert offered["sink"] == "kafka://broker:9092"


def fields_in(answer: Answer) -> Mapping[str, str]:
    [form] = [each for each in answer.page.forms if each.target == "/ui/new"]
    return form.fields


def text_in(answer: Answer) -> str:
    return answer.page.forms[0].fields["text"]


def test_the_form_is_shown_as_a_file_too_and_a_file_fills_in_the_form(
    browser: Browser, fields: dict[str, str], tmp_path: Path
) -> None:
    more = {
        "query": 'SELECT n\nFROM counter WHERE note <> \'a \\ """b"\x7f\'',
        "tables": "",
        "options.format": "x",
        "functions.twice": "n * 2",
        "spark.executor.memory": "2g",
        "updated": "true",
        "mask_key": "${PW}",
    }
    given = {**fields, **more}
    text = text_in(browser.post("/ui/new/validate", **given))
    assert "updated = true\n" in text
    assert "total = 40\n" in text
    read_back = fields_in(browser.post("/ui/new/text", text=text))
    assert {name: value for name, value in read_back.items() if value} == {k: v for k, v in given.items() if v}
    file = tmp_path / "shop.toml"
    file.write_text(text_in(browser.post("/ui/new/validate", **fields)))
    read = read_changefeed(file, environ={"PW": "x"})
    assert (read.name, read.tables, read.sink, read.options["total"]) == ("orders", (TABLE,), "journal://", 40)
    assert text_in(browser.get("/ui/new")) == ""


def test_sections_of_a_file_come_back_in_the_form(browser: Browser) -> None:
    text = """
    [changefeed."a b"]
    source = ["counter://a/x", "counter://b/x"]
    tables = ["t,1", "u"]
    [changefeed."a b".table."public.t"]
    where = "n > 0"
    columns = { n = "n + 1", at = 2026-01-31 }
    [changefeed."a b".options]
    kafka_sink_config = { Flush = { Messages = 1_000, Frequency = "1s" } }
    """
    answer = browser.post("/ui/new/text", text=text)
    found = fields_in(answer)
    assert found["name"] == "a b"
    assert json.loads(found["tables"]) == ["t,1", "u"]
    assert json.loads(found["table.public.t"])["columns"] == {"n": "n + 1", "at": "2026-01-31"}
    assert json.loads(found["kafka_sink_config.Flush"])["Messages"] == 1000
    again = browser.post("/ui/new/text", text=text_in(answer))
    assert fields_in(again) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[changefeed.a]\nsource = x", "the text, line 2, column 10: "),
        ("[changefeed.a]\n[changefeed.b]", "several changefeeds; keep only one of them: a, b"),
        ("[changefeed.a]\nsauce = 1", "unknown key 'sauce'"),
        ("[changefeed.a]\nsource = 1", "'source' must be a string"),
        ("source = 'x'", "unknown key 'source'; name the tables [changefeed.NAME]"),
        ("x = " + "[" * 9000, "nested too deeply"),
        ("x = " + "9" * 5000, "the text: "),
        ("x = 0x" + "f" * 5000, "the text: an integer has more than 64 bits"),
        ("#" * 65_537, "the text has more than 65,536 characters"),
        ("[changefeed.a]\n" + ".".join("a" * 2000) + " = 1", "the text, line 2: a key has more than 20 parts"),
        ("x = {" + " .\t".join(['"\\".\\\\"', "'.'", "a-1"] * 7) + " = 1}", "a key has more than 20 parts"),
        ("[changefeed.a.table]\n" + "a.b.c.d.e.f.g.h = {" * 150 + "}" * 150, "nested too deeply"),
        ("[changefeed.a.options]\n" + "".join(f"x{n} = 1\n" for n in range(1000)), "the text has 1001 entries"),
    ],
)
def test_a_text_that_cannot_be_read_stays_with_the_reason(browser: Browser, text: str, reason: str) -> None:
    answer = browser.post("/ui/new/text", text=text)
    assert answer.status == 400
    assert reason in answer.page.text
    assert text_in(answer) == text
    assert answer.page.active == []


def test_a_form_with_all_the_entries_that_a_text_may_have_can_be_sent(browser: Browser) -> None:
    text = "[changefeed.a.functions]\n" + "".join(f"x{number} = '1'\n" for number in range(999))
    found = fields_in(browser.post("/ui/new/text", text=text))
    assert len(found) > 1000
    assert browser.post("/ui/new/validate", **found).status == 200


@pytest.mark.parametrize("depth", [300, 900, 20_000])
def test_values_that_are_nested_too_deeply_or_too_long_are_refused(
    browser: Browser, fields: dict[str, str], depth: int
) -> None:
    for name in ("table.counter", "nonsense", "source", "dead_letter"):
        for text in ('{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth, f'{{"a": 1{"0" * depth}}}'):
            assert browser.post("/ui/new", **{**fields, name: text}).status == 400


def test_what_is_needed_and_common_comes_first_and_the_rest_is_in_closed_groups(
    browser: Browser, fields: dict[str, str]
) -> None:
    further = {"max_attempts": "7", "table.counter": '{"where": "n > 0"}', "spark.x": "1"}
    answer = browser.post("/ui/new/validate", **fields, **further)
    first, *groups = answer.body.partition('<div id="form">')[2].split('<details class="options"')
    names = [re.findall(r'<(?:input|select|textarea) [^>]*name="([^"]+)"', each) for each in (first, *groups)]
    assert names[0][:7] == ["name", "source", "tables", "query", "sink", "format", "control"]
    assert {"envelope", "resolved", "initial_scan", "on_error"} <= set(names[0])
    assert len(groups) > 8
    flat = [name for each in names for name in each]
    assert len(flat) == len(set(flat))
    assert max(map(len, names)) < 16
    is_open = {
        name: " open>" in group.partition("<summary>")[0]
        for group, each in zip(groups, names[1:], strict=True)
        for name in each
    }
    assert (
        is_open.items() >= {"max_attempts": True, "rows_per_step": True, "topic": False, "max_step_rows": False}.items()
    )
    assert names[-1] == ["table.counter", "spark.x"]
    assert browser.post("/ui/new", **fields, **further).status == 303


def test_a_value_that_belongs_to_nothing_stays_in_the_form(browser: Browser, fields: dict[str, str]) -> None:
    answer = browser.post("/ui/new/validate", **fields, topic_prefix="shop")
    assert errors_of(answer).keys() == {"topic_prefix"}
    assert fields_in(answer)["topic_prefix"] == "shop"


def test_what_is_wrong_stands_at_its_field_and_nothing_is_created(
    browser: Browser, store: ProgressStore, fields: dict[str, str]
) -> None:
    wrong = {**fields, "name": "a b", "max_step_rows": "many", "retry_backoff": "soon", "envelope": "bare"}
    for path in ("/ui/new/validate", "/ui/new/check", "/ui/new"):
        text = browser.post(path, **wrong).page.text
        assert "option 'max_step_rows' must be a whole number" in text
        assert "option 'retry_backoff' must be a duration" in text
        assert "Correct the marked values." in text
    assert store.changefeeds.all() == []


def errors_of(answer: Answer) -> dict[str, str]:
    """Return what the form says to be wrong, by field."""
    return dict(re.findall(r'id="h-f-([\w-]+)"><strong>(.*?)</strong>', answer.body, re.DOTALL))


@pytest.mark.parametrize(
    ("wrong", "wanted"),
    [
        (
            {"name": "a b", "source": "nonsense", "sink": "ftp://x", "format": "xml", "max_attempts": "often"},
            {"name", "source", "sink", "format", "max_attempts"},
        ),
        (
            {"name": "a b", "tables": "t,t", "total": "many", "key_column": "x", "max_step_rows": "0"},
            {"name", "tables", "total", "key_column", "max_step_rows"},
        ),
        (
            {"name": "", "tables": "", "query": "SELEC", "retry_backoff": "9s", "max_retry_backoff": "1s"},
            {"name", "query", "max_retry_backoff"},
        ),
        (
            {"metrics_label": "${PW}", "mask_key": "${file:/etc/passwd}", "topic": "x{y}", "log_slow": "0s"},
            {"metrics_label", "mask_key", "topic", "log_slow"},
        ),
        (
            {
                "source": "counter://reader:a/b@host/shop",
                "on_error": "dead",
                "dead_letter": "file:///d",
                "topic": "{y}",
            },
            {"source", "on_error", "topic"},
        ),
        (
            {"sink": "kafka://b:9092?nope=1", "source": "postgresql://u@h/d", "slot_name": "A B", "max_attempts": "0"},
            {"sink", "slot_name", "max_attempts", "control", "total", "rows_per_step", "keys"},
        ),
        (
            {"control": "", "table.counter": '{"where": "n >"}', "functions.twice": "n", "max_step_rows": "0"},
            {"control", "table-counter", "query", "max_step_rows"},
        ),
    ],
)
def test_all_that_is_wrong_is_said_at_once_and_each_at_its_field(
    browser: Browser, fields: dict[str, str], wrong: dict[str, str], wanted: set[str]
) -> None:
    answer = browser.post("/ui/new/validate", **{**fields, **wrong})
    assert errors_of(answer).keys() == wanted
    assert [text for text in errors_of(answer).values() if "-_-" in text] == []
    assert browser.post("/ui/new", **{**fields, **wrong}).status == 400


def test_of_very_many_errors_the_first_ones_are_said(browser: Browser, fields: dict[str, str]) -> None:
    sections = {f"table.{number}": '{"where": 1}' for number in range(200)}
    errors = errors_of(browser.post("/ui/new/validate", **fields, **sections))
    assert 20 <= len(errors) <= 40
    assert errors.keys() <= {name.replace(".", "-") for name in sections}


def test_while_it_is_filled_in_what_is_missing_is_no_error_yet(browser: Browser) -> None:
    typed = browser.get("/ui/new?name=orders").page.text
    assert "Fill in the form" in typed
    assert "Missing required" not in typed
    assert "Missing required" in browser.post("/ui/new/validate", name="orders").page.text


def test_markup_in_a_field_comes_back_as_text(browser: Browser) -> None:
    answer = browser.post("/ui/new/validate", name=HOSTILE, query=HOSTILE, source=HOSTILE, unheard_of=HOSTILE)
    assert answer.page.active == []
    assert "<script>" not in answer.body
    assert fields_in(answer)["name"] == HOSTILE


def test_secrets_are_not_shown_and_must_be_references(
    browser: Browser, store: ProgressStore, fields: dict[str, str]
) -> None:
    literal = browser.post("/ui/new", **{**fields, "source": "counter://reader:open-sesame@host/shop"})
    assert literal.status == 400
    assert "a secret in plain text" in literal.page.text
    checked = browser.post("/ui/new/check", **fields)
    assert "its rows can be delivered. Nothing was created." in checked.page.text
    assert "hunter2" not in checked.body
    assert store.changefeeds.all() == []


def test_a_valid_form_becomes_a_job_of_the_caller(
    browser: Browser, store: ProgressStore, fields: dict[str, str]
) -> None:
    answer = browser.post("/ui/new", **fields)
    assert (answer.status, answer.headers["location"]) == (303, "/ui/changefeeds/orders?done=create")
    job = store.jobs.find("orders")
    assert job is not None
    assert (job.state, job.owner) == ("running", "local")
    text = browser.get(answer.headers["location"]).page.text
    assert "The changefeed is created." in text
    assert "source counter://reader:${PW}@host/shop" in text
    again = browser.post("/ui/new", **fields)
    assert again.status == 400
    assert "is already a job" in again.page.text


def test_a_job_is_altered_by_a_form_with_what_is_written(
    browser: Browser, store: ProgressStore, fields: dict[str, str]
) -> None:
    assert browser.post("/ui/new", **{**fields, "updated": "true"}).status == 303
    assert "/ui/changefeeds/orders/alter" in browser.get("/ui/changefeeds/orders").page.links
    [form] = browser.get("/ui/changefeeds/orders/alter").page.forms
    assert (form.fields["tables"], form.fields["updated"], form.fields["total"]) == (TABLE, "true", "40")
    assert form.fields.keys().isdisjoint({"name", "source", "query"})

    wrong = browser.post(form.target, **{**form.fields, "resolved": "soon", "sink": ""})
    assert (wrong.status, set(errors_of(wrong))) == (400, {"resolved", "sink"})
    assert wrong.page.forms[0].fields["resolved"] == "soon"
    for name, value in (("source", "counter://x/y"), ("tables", "t,t"), ("unheard_of", "1")):
        assert browser.post(form.target, **{**form.fields, name: value}).status == 400
    early = browser.post(form.target, **{**form.fields, "tables": f"{TABLE}\nmore", ":scan": "no"})
    assert (early.status, errors_of(early).keys()) == (400, {"tables"})
    assert "has not started yet" in early.page.text
    assert store.events.read("orders", kinds=["alter_changefeed"]) == []

    done = browser.post(form.target, **{**form.fields, "resolved": "1s", "updated": "", "tables": f"{TABLE}\nmore"})
    assert (done.status, done.headers["location"]) == (303, "/ui/changefeeds/orders?done=alter")
    text = browser.get(done.headers["location"]).page.text
    assert "The changefeed was altered." in text
    assert "altered (local): added more; set resolved; unset updated" in text
    stale = browser.post(form.target, **{**form.fields, "resolved": "2s"})
    assert (stale.status, "was changed in the meantime" in stale.page.text) == (409, True)


def test_a_preview_shows_messages_and_leaves_nothing_behind(
    store: ProgressStore, plugins: PluginHost, database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE shelf (id int PRIMARY KEY, label text)")
        connection.execute("INSERT INTO shelf VALUES (1, %s), (2, 'plain')", [HOSTILE])
    [password] = uri_secrets(database)
    source, out = documented(database).replace(password, "${DB}"), tmp_path / "out"
    with served(deployment(store, plugins, DB=password)) as server:
        browser = Browser(server.address.port)
        values = {"name": "shelf", "source": source, "tables": "public.shelf", "sink": f"file://{out}"}
        assert browser.post("/ui/new", **values).status == 303
        answer = browser.get("/ui/changefeeds/shelf/preview?rows=5")
        assert browser.get("/ui/changefeeds/shelf/preview?rows=0").status == 400
    assert "2 messages; nothing was sent." in answer.page.text
    assert '"label": "plain"' in answer.page.text
    assert answer.page.active == []
    assert not out.exists()


def test_dead_letters_are_shown_with_their_rows_replayed_and_discarded(
    browser: Browser,
    store: ProgressStore,
    plugins: PluginHost,
    fields: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead"}
    Script(tmp_path).order("bad-rows", json.dumps({"how": "name", "rows": [17, 23]}))
    written = {name: fields[name] for name in ("source", "sink", "format")} | {"tables": [TABLE]}
    options = {name: fields[name] for name in ("control", "total", "rows_per_step", "keys")} | dead
    changefeed = changefeed_of("orders", {**written, "options": options}, origin="a test", environ={"PW": "x"})
    engine = LocalEngine(resolve(changefeed, plugins), tmp_path / "state")
    engine.run()
    engine.until(Timestamp(40))
    engine.store.close()
    assert browser.post("/ui/new", **{**fields, **dead}).status == 303

    page = browser.get("/ui/changefeeds/orders").page
    assert "17 is refused" in page.text
    monkeypatch.setattr(views, "LETTERS", 1)
    page = browser.get("/ui/changefeeds/orders").page
    assert "Replay all 2" in page.text
    assert "and 1 more" in page.text
    first, second = (letter.number for letter in store.dead_letters.of("orders"))
    shown = browser.get(f"/ui/changefeeds/orders/dead-letters/{first}").page
    for other in (0, first - 1, f"0{first}", second + 1, "x", "9" * 30, "%C2%B2"):
        assert browser.get(f"/ui/changefeeds/orders/dead-letters/{other}").status == 404
    assert 'after: { "id": 7, "n": 17 }' in shown.text
    refused = browser.post("/ui/changefeeds/orders/replay")
    assert (refused.status, "pause it" in refused.page.text) == (409, True)
    Changefeeds(store).pause("orders", "to replay")
    again = browser.post("/ui/changefeeds/orders/replay")
    assert again.status == 409
    assert "still dead letters" in again.page.text
    (tmp_path / "bad-rows").unlink()
    [form] = browser.get(f"/ui/changefeeds/orders/dead-letters/{second}/discard").page.forms
    assert browser.post(form.target).status == 303
    assert store.dead_letters.of("orders") == []
    assert "There are no dead letters." in browser.get("/ui/changefeeds/orders?done=discard").page.text
    assert browser.get(f"/ui/changefeeds/orders/dead-letters/{first}").status == 404
