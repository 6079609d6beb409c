"""`cdc trace` on real servers, with the engine's own parts: a change is followed from its commit to the sink."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import read_topics
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock
from cdc_testing.webhook_server import WebhookServer

from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore
from cdc_core.store.traced_change import STAGES


@pytest.fixture(autouse=True)
def ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the store for traces before each step."""
    monkeypatch.setattr("cdc_core.engine.control_requests._POLL_S", 0.0)


@pytest.fixture
def items(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE items (id bigint, region text, note text, PRIMARY KEY (region, id))")
    sql.execute("INSERT INTO items SELECT n, 'eu', 'secret-' || n FROM generate_series(1, 50) n")
    return sql


@contextmanager
def running(database: str, directory: Path, sink: str, **options: Any) -> Iterator[LocalEngine]:
    """Yield an engine whose scan is over; afterwards it is closed."""
    engine = LocalEngine(resolved_feed(database, sink, "items", options=options), directory)
    with closing(engine):
        engine.run()
        engine.until(clock(database))
        yield engine


@contextmanager
def stepping(engine: LocalEngine, change: Any) -> Iterator[None]:
    """Take steps in a thread while the block runs, and call *change* once a trace is active."""
    over = threading.Event()
    failures: list[BaseException] = []

    def steps() -> None:
        waiting = change
        try:
            while not over.is_set():
                if waiting is not None and engine.store.traces.active():
                    waiting()
                    waiting = None
                engine.step()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=steps)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def traced(capsys: pytest.CaptureFixture[str], directory: Path, *arguments: str, status: int = 0) -> list[Any]:
    """Return what `cdc trace --json` prints."""
    given = ["trace", "t", "--store", str(directory), "--json", *arguments]
    assert main(given) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_key_is_followed_from_its_commit_to_the_resolved_mark(
    database: str, items: psycopg.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change() -> None:
        items.execute("UPDATE items SET note = 'secret-new' WHERE id <= 20")
        items.execute("DELETE FROM items WHERE id = 7")

    with running(database, tmp_path, f"file://{tmp_path}/files") as engine:
        with stepping(engine, change):
            found = traced(capsys, tmp_path, "--table", "public.items", "--key", '["eu", 7]', "--rows", "2")
        assert engine.store.traces.active() == {}
        wal = items.execute("SELECT pg_current_wal_lsn()").fetchone()
    update, delete = found
    assert (update["op"], update["key"], update["complete"]) == ("update", ["eu", 7], True)
    assert (delete["op"], delete["key"], delete["complete"]) == ("delete", ["eu", 7], True)
    for each in found:
        times = [each["stages"][stage] for stage in STAGES]
        assert times == sorted(times)
        assert each["place"]["file"].endswith(".ndjson")
        assert (tmp_path / "files" / each["place"]["file"]).is_file()
        assert "secret" not in json.dumps(each)
    with psycopg.connect(database) as connection:
        ordered = "SELECT %s::pg_lsn < %s::pg_lsn AND %s::pg_lsn < %s::pg_lsn"
        positions = (update["position"], delete["position"], delete["position"], wal[0] if wal else None)
        assert connection.execute(ordered, positions).fetchone() == (True,)


def test_without_a_key_the_next_changes_are_followed(
    database: str, items: psycopg.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        running(database, tmp_path, "null://") as engine,
        stepping(engine, lambda: items.execute("UPDATE items SET note = 'x'")),
    ):
        found = traced(capsys, tmp_path, "--rows", "3")
    assert len({each["key"][1] for each in found}) == 3
    assert all(each["complete"] for each in found)


def test_kafka_says_partition_and_offset(
    database: str,
    items: psycopg.Connection,
    kafka_broker: Kafka,
    topic_prefix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def change() -> None:
        with items.transaction():
            items.execute("UPDATE items SET note = 'x' WHERE id IN (3, 7)")
            items.execute("DELETE FROM items WHERE id IN (3, 7)")

    sink = f"kafka://{kafka_broker.bootstrap_servers}?topic_prefix={topic_prefix}&tombstones_on_delete=true"
    with running(database, tmp_path, sink) as engine, stepping(engine, change):
        (found,) = traced(capsys, tmp_path, "--table", "items", "--key", '["eu", 7]', "--rows", "1")
    place = found["place"]
    at = {
        (message.partition, message.offset): message
        for message in read_topics(kafka_broker.bootstrap_servers, [place["topic"]])
    }
    message = at[place["partition"], place["offset"]]
    assert json.loads(message.key or b"") == ["eu", 7]
    assert json.loads(message.value or b"")["after"] is None
    assert found["op"] == "delete", "a transaction has one change of a key"


def test_a_change_that_the_endpoint_does_not_accept_is_shown_with_what_it_waits_for(
    database: str,
    items: psycopg.Connection,
    webhook_server: WebhookServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = webhook_server.new_path()
    arguments = ("--table", "items", "--key", '["eu", 7]', "--rows", "1")
    unmarked = {**webhook_server.trust, "resolved": False}  # a mark that the endpoint refuses would hold up the change
    with running(database, tmp_path, webhook_server.uri(path), **unmarked) as engine:
        with stepping(engine, lambda: items.execute("UPDATE items SET note = 'x' WHERE id = 7")):
            with webhook_server.failing(random=[{"share": 1.0, "status": 503}]):
                (found,) = traced(capsys, tmp_path, *arguments, "--timeout", "2s", status=1)
            assert not found["complete"]
            assert list(found["stages"]) == ["planned", "read", "encoded", "emitted"]
        with stepping(engine, lambda: items.execute("UPDATE items SET note = 'y' WHERE id = 7")):
            (found,) = traced(capsys, tmp_path, *arguments)
    accepted = [json.loads(request["headers"]["idempotency-key"]) for request in webhook_server.requests(path)]
    assert found["place"]["request"] in accepted
    assert found["place"]["status"] == 200


def test_a_trace_that_finds_nothing_says_where_the_changefeed_stands(
    database: str,
    items: psycopg.Connection,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(store: ProgressStore, name: str) -> None:
        raise KeyboardInterrupt

    with running(database, tmp_path, "null://"):
        assert main(["trace", "t", "--store", str(tmp_path), "--table", "items", "--timeout", "1s"]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert "changefeed 't' is" in said.err
        assert "has delivered everything committed up to" in said.err
        assert main(["trace", "t", "--store", str(tmp_path), "--table", "itmes"]) == 2
        assert "did you mean 'items'" in capsys.readouterr().err
        assert main(["trace", "t", "--store", str(tmp_path), "--table", "items", "--key", "7"]) == 2
        assert "'7' is not a JSON array" in capsys.readouterr().err
        assert main(["trace", "t", "--store", str(tmp_path), "--key", "[7]"]) == 2
        assert "--key requires --table" in capsys.readouterr().err
        monkeypatch.setattr("cdc_core.cli.trace.standing_text", interrupt)
        assert main(["trace", "t", "--store", str(tmp_path)]) == 1
        said = capsys.readouterr()
        assert "no such change was read" in said.err
