"""Previews of queries over REST and on the page: made by a process that ends with the answer, or without one."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from cdc_testing.browsing import Browser
from cdc_testing.documented_role import documented
from cdc_testing.rest_rig import ENVIRON, Rest, config, rest_plugins, serving_rest
from cdc_testing.runs import eventually
from cdc_testing.scripted import Script

from cdc_core.changefeeds import previewing
from cdc_core.engine.ipc import line, packed
from cdc_core.masking import uri_secrets
from cdc_core.plugins.host import PluginHost
from cdc_core.web.requests import Deployment

PREVIEW = "/v1/jobs/orders/preview"
SHOWN = "/ui/changefeeds/orders/preview"


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no temporary file is there at the end that was not there before."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = set(children())
    yield
    assert set(children()) <= before
    assert list(scratch.iterdir()) == []


def children() -> list[psutil.Process]:
    """Return the processes that make previews, and those that they have started."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "cdc_core.changefeeds.preview_main" in process.cmdline():
                found += [process, *process.children(recursive=True)]
    return found


@pytest.fixture
def script(tmp_path: Path, workers_find_the_tests: None) -> Script:
    (tmp_path / "control").mkdir()
    return Script(tmp_path / "control")


@pytest.fixture
def counted(tmp_path: Path, script: Script) -> Iterator[Rest]:
    """A server with a job that selects columns, which needs no Spark. Its source takes orders; its scan has no end."""
    with serving_rest(tmp_path / "store") as rest:
        section = json.dumps({"columns": {"include": ["id", "n"]}})
        rest.create("orders", config(script.directory, **{"table.counter": section}))
        yield rest


@contextmanager
def asking(rest: Rest, script: Script) -> Iterator[http.client.HTTPConnection]:
    """Yield a client that waits for a preview, whose process reads."""
    held = script.directory / "hold-read.held"
    held.unlink(missing_ok=True)
    script.order("hold-read")
    with closing(http.client.HTTPConnection(rest.url.removeprefix("http://"))) as client:
        client.request("GET", PREVIEW)
        eventually("the process to read", held.exists, limit_s=120)
        yield client


def test_a_preview_ends_with_its_process_and_its_process_with_the_client(counted: Rest, script: Script) -> None:
    with asking(counted, script) as client:
        busy = counted.client.get(PREVIEW)
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "5")
        assert "a preview of a query is running" in busy.json()["message"]
        page = Browser(int(counted.url.rpartition(":")[2])).get(SHOWN)
        assert (page.status, page.headers["retry-after"]) == (429, "5")
        for process in children():
            process.kill()
        answer = client.getresponse()
        assert answer.status == 409
        assert "its process ended early" in json.load(answer)["message"]
    with asking(counted, script):
        assert children()
    eventually("the end of the process", lambda: not children(), limit_s=120)


def test_the_page_says_why_there_is_no_preview_without_secrets(counted: Rest, script: Script) -> None:
    browser = Browser(int(counted.url.rpartition(":")[2]))
    assert "takes a few seconds" in browser.get("/ui/changefeeds/orders").page.text
    script.order("check", "ConfigError no such table at reader:hunter2-of-the-source@host")
    answer = browser.get("/ui/changefeeds/orders/preview?rows=3")
    assert answer.status == 400
    assert "no such table at reader:***@host" in answer.page.text
    wrong = browser.get("/ui/changefeeds/orders/preview?rows=0")
    assert (wrong.status, "from 1 to 100" in wrong.page.text) == (400, True)


def test_a_preview_has_a_limit_in_time_and_in_size(
    counted: Rest, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.order("check", "ConfigError no such table")
    with monkeypatch.context() as cut:
        exchange = previewing._exchange
        cut.setattr(previewing, "_exchange", lambda *args, **more: exchange(*args, **more)[:-9])
        assert "its process ended early" in counted.message("GET", PREVIEW, status=409)
    monkeypatch.setattr(previewing, "MAX_BYTES", 10)
    assert "ask for fewer rows" in counted.message("GET", PREVIEW, status=409)
    monkeypatch.setattr(previewing, "_LIMIT_S", 0.01)
    assert "it took longer than 0.01 s; use `cdc preview`" in counted.message("GET", PREVIEW, status=409)


def test_no_page_of_another_site_and_no_head_starts_one(counted: Rest, script: Script) -> None:
    script.order("check", "ConfigError it was started")
    for path in (PREVIEW, SHOWN):
        for other in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "https://a.example"},
        ):
            answer = counted.client.get(path, headers=other)
            assert (answer.status_code, "cross-site request refused" in answer.text) == (403, True)
        head = counted.client.head(path)
        assert (head.status_code, head.headers["allow"]) == (405, "GET")
    for own in ({"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin", "Origin": counted.url}):
        answer = counted.client.get(f"{PREVIEW}?rows=0", headers=own)
        assert (answer.status_code, "from 1 to 100" in answer.text) == (400, True)


def test_the_process_ends_when_the_server_does_with_its_files(counted: Rest, script: Script, tmp_path: Path) -> None:
    scratch = tmp_path / "of-preview"
    (scratch / "cdc-watch-1").mkdir(parents=True)
    known = counted.store.changefeeds.find("orders")
    assert known is not None
    kept = Deployment(counted.store, rest_plugins(), environ=ENVIRON, keep_secret=lambda _: None)
    job = line(feed=packed(kept.changefeeds.feed("orders", known.definition)), rows=3, scratch=str(scratch))
    script.order("hold-read")
    command = [sys.executable, "-P", "-m", "cdc_core.changefeeds.preview_main"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        process.stdin.write(job)
        process.stdin.flush()
        eventually("the process to read", (script.directory / "hold-read.held").exists, limit_s=120)
        process.stdin.close()
        assert process.wait(60) == 1
    assert not scratch.exists()


@pytest.mark.slow
def test_messages_of_a_query_are_shown_as_others_are(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount int)")
        connection.execute("INSERT INTO orders VALUES (1, 4), (2, 0), (3, -1), (4, 5)")
    [password] = uri_secrets(database)
    wanted = {"connector.class": "cdc.Changefeed", "source": documented(database).replace(password, "${DB}")}
    wanted |= {"sink": "kafka://127.0.0.1:1", "extra_headers.by": "${DB}"}
    query = "SELECT id, 100 / amount AS share FROM orders WHERE amount >= 0"
    with serving_rest(tmp_path / "store", plugins=PluginHost.load(), DB=password) as rest:
        created = {"name": "orders", "config": {**wanted, "query": query}}
        rest.ask("POST", "/connectors?check=false", status=201, json=created)
        first, refused, last = rest.get(PREVIEW)
        assert first == {
            "topic": "orders",
            "key": "[1]",
            "value": '{"id": 1, "share": 25}',
            "headers": {"by": "***"},
            "decoded": False,
            "error": None,
        }
        assert (refused["key"], refused["value"], last["key"]) == ("[2]", None, "[4]")
        assert "the query cannot compute 100 / amount" in refused["error"]
