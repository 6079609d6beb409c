"""The demo: its audit finds every kind of fault, its writers make every kind of change, and it ends with status 0."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.audit import Audit, audit, replay
from cdc_rangefeed_postgres.demo.comparison import compare
from cdc_rangefeed_postgres.demo.movr import TABLES, Workload, load
from cdc_rangefeed_postgres.demo.replay import Replay
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile
from cdc_testing.fixtures import fresh_database
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.runs import eventually

from cdc_core import Timestamp

Message = dict[str, Any]
ROWS: list[Message] = [
    {"a": 1, "b": 'x\\y "z" \n史', "c": 1.50, "d": {"k": [1, None]}, "e": "2020-01-31T01:02:03.5"},
    {"a": 2, "b": None, "c": "NaN", "d": None, "e": "infinity"},
]


@pytest.fixture(scope="module")
def table(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """URI of a database whose table t has the rows ROWS. No test changes it."""
    with fresh_database(postgres_server) as uri:
        create(uri)
        yield uri


def create(uri: str) -> None:
    with psycopg.connect(uri) as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text, c numeric, d jsonb, e timestamp)")
        connection.execute(
            "INSERT INTO t VALUES (1, %s, 1.50, '{\"k\": [1, null]}', '2020-01-31 01:02:03.5'),"
            " (2, NULL, 'NaN', NULL, 'infinity')",
            [ROWS[0]["b"]],
        )


def message(after: Message, updated: int) -> Message:
    return {"after": after, "key": [after["a"]], "updated": str(Timestamp(updated))}


def deletion(key: int, updated: int) -> Message:
    return {"after": None, "key": [key], "updated": str(Timestamp(updated))}


def write(directory: Path, *steps: list[Message] | int) -> Path:
    """Write each list of messages as a data file, and each number as a resolved mark, in this order."""
    lower = Timestamp(1)
    for number, step in enumerate(steps):
        if isinstance(step, int):
            mark = Timestamp(step)
            lower = mark.next()
            path = directory / ResolvedFile(timestamp=mark).path("daily")
            body = json.dumps({"resolved": str(mark)})
        else:
            name = DataFile(
                timestamp=lower,
                epoch=1,
                step=number,
                slice_index=0,
                counter=0,
                topic="t",
                schema_version=1,
                extension=".ndjson",
            )
            path = directory / name.path("daily")
            body = "".join(json.dumps(line).replace("1.5,", "1.50,") + "\n" for line in step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    return directory


def faults(directory: Path, uri: str) -> tuple[int, int, int]:
    found = compare(replay(directory), uri, ["t"])
    assert found.passed == ((found.missing, found.extra, found.out_of_order) == (0, 0, 0))
    return found.missing, found.extra, found.out_of_order


GOOD = [message(row, 5) for row in ROWS]


def test_the_audit_passes_files_that_make_up_the_database(table: str, tmp_path: Path) -> None:
    older = message({**ROWS[0], "b": "old"}, 2)
    gone = message({**ROWS[0], "a": 3}, 2)
    files = write(tmp_path, [older, gone], 3, [deletion(3, 4), *GOOD], [older], 5, [message(ROWS[0], 9)])
    assert compare(replay(files), table, ["t"]) == Audit(rows=7, resolved=2, missing=0, extra=0, out_of_order=0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row.update(b="y"),
        lambda row: row.update(b=None),
        lambda row: row.update(c=1.51),
        lambda row: row.update(c=1),
        lambda row: row.update(d={"k": [1]}),
        lambda row: row.update(d=None),
        lambda row: row.update(e="2020-01-31T01:02:03.500001"),
    ],
    ids=["text", "null", "digit", "scale", "json", "no-json", "microsecond"],
)
def test_the_audit_finds_a_difference_in_any_column(
    spoil: Callable[[Message], None], table: str, tmp_path: Path
) -> None:
    row = dict(ROWS[0])
    spoil(row)
    assert faults(write(tmp_path, [message(row, 5), GOOD[1]], 5), table) == (1, 1, 0)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((GOOD[:1], 5), (1, 0, 0)),
        ((GOOD, 4), (2, 0, 0)),
        (([*GOOD, message({**ROWS[0], "a": 3}, 5)], 5), (0, 1, 0)),
        (([GOOD[0], message({name: ROWS[1][name] for name in "abce"}, 5)], 5), (0, 1, 0)),
        (([GOOD[0], message({**ROWS[1], "z": None}, 5)], 5), (0, 1, 0)),
        (([GOOD[0], {**GOOD[1], "key": ["2"]}], 5), (0, 1, 0)),
        ((GOOD, [message({**ROWS[0], "b": "old"}, 4)], 5), (0, 0, 1)),
        ((GOOD[:1], 5, GOOD[1:], 6), (0, 0, 1)),
    ],
    ids=[
        *("missing row", "not resolved", "missing delete", "missing column that is null", "unknown column"),
        *("wrong key", "new version after a later one", "row after its mark"),
    ],
)
def test_the_audit_finds(
    steps: tuple[list[Message] | int, ...], found: tuple[int, int, int], table: str, tmp_path: Path
) -> None:
    assert faults(write(tmp_path, *steps), table) == found


def test_an_audit_without_files_does_not_pass(database: str, tmp_path: Path) -> None:
    assert not audit(tmp_path, database, []).passed


def test_an_audit_without_manifests_does_not_pass(table: str, tmp_path: Path) -> None:
    found = audit(write(tmp_path, GOOD, 5), table, ["t"])
    assert (found.missing, found.extra, found.out_of_order, found.not_once) == (0, 0, 0, 2)
    assert not found.passed


def deliver(uri: str, directory: Path) -> Path:
    """Return the files of a changefeed that has delivered table t and some changes."""
    engine = LocalEngine(resolved_feed(uri, f"file://{directory}/files", "t", options={"file_size": 1}), directory)
    engine.run()
    while not engine.high_water:
        engine.step()
    for change in ("UPDATE t SET c = c + 1", "DELETE FROM t WHERE a = 2", "UPDATE t SET b = 'last'"):
        with psycopg.connect(uri) as connection:
            connection.execute(change)
        before = engine.high_water
        while engine.high_water <= before:
            engine.step()
    engine.close()
    return directory / "files"


def test_the_audit_finds_in_manifests_what_they_list_twice_or_not_at_all(database: str, tmp_path: Path) -> None:
    create(database)
    files = deliver(database, tmp_path)
    found = audit(files, database, ["t"])
    assert (found.rows, found.missing, found.extra, found.out_of_order, found.not_once) == (6, 0, 0, 0, 0)
    assert found.passed
    *_, last = sorted(files.rglob("*.MANIFEST.*"))
    header, file = last.read_text().splitlines()
    for listed in ([file, file], []):
        last.write_text("\n".join([json.dumps(json.loads(header) | {"files": len(listed)}), *listed]) + "\n")
        found = audit(files, database, ["t"])
        assert (found.missing, found.extra, found.out_of_order, found.not_once) == (0, 0, 0, 1), listed
        assert not found.passed


def note(replay: Replay, partition: str, key: str, updated: int, row: bytes | None = b"{}") -> None:
    replay.note_row(partition, "t", key=key, row=row, updated=Timestamp(updated))


def keys(replay: Replay) -> set[str]:
    return {key for key, (_, row) in replay.tables.get("t", {}).items() if row is not None}


def test_a_replay_stops_at_its_slowest_partition() -> None:
    replay = Replay()
    replay.watch("p0")
    replay.watch("p1")
    note(replay, "p0", "a", 3)
    note(replay, "p1", "b", 5)
    replay.note_resolved("p0", Timestamp(9))
    assert (replay.last_resolved, keys(replay)) == (Timestamp(), set())
    replay.note_resolved("p1", Timestamp(4))
    assert (replay.last_resolved, keys(replay)) == (Timestamp(4), {"a"})
    replay.note_resolved("p1", Timestamp(9))
    assert (replay.last_resolved, keys(replay)) == (Timestamp(9), {"a", "b"})


def test_a_replay_waits_for_a_partition_that_appears() -> None:
    replay = Replay()
    replay.note_resolved("p0", Timestamp(4))
    replay.watch("p1")
    note(replay, "p0", "a", 5)
    replay.note_resolved("p0", Timestamp(6))
    assert (replay.last_resolved, keys(replay)) == (Timestamp(4), set())
    replay.note_resolved("p1", Timestamp(6))
    assert keys(replay) == {"a"}


def test_a_replay_accepts_repeats_and_finds_rows_out_of_order() -> None:
    replay = Replay()
    for updated in (1, 2, 3, 2):
        note(replay, "p0", "a", updated)
    replay.note_resolved("p0", Timestamp(4))
    assert replay.out_of_order == []
    note(replay, "p0", "b", 4)
    note(replay, "p1", "a", 5)
    assert len(replay.out_of_order) == 2
    assert "after resolved mark" in replay.out_of_order[0]
    assert "in two partitions, p0 and p1" in replay.out_of_order[1]


def test_writers_insert_update_delete_and_change_keys(database: str) -> None:
    started = load(database, users=200, vehicles=100, rides=300)
    assert started == 600
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('watch', 'test_decoding')")
        workload = Workload(database, writers=2, seed=1)
        workload.start()
        eventually("a thousand changes", lambda: workload.changes >= 1000)
        workload.stop()
        query = "SELECT data FROM pg_logical_slot_peek_changes('watch', NULL, NULL)"
        lines = [str(line) for (line,) in connection.execute(query) if str(line).startswith("table")]
    done = {re.match(r"table public\.(\w+): (\w+): (old-key)?", line).groups() for line in lines}  # type: ignore[union-attr]
    assert {(table, "UPDATE", None) for table in ("rides", "vehicles")} <= done
    assert {(table, "INSERT", None) for table in ("rides", "users")} <= done
    assert {(table, "DELETE", None) for table in ("rides", "users")} <= done
    assert ("users", "UPDATE", "old-key") in done
    assert {table for table, _, _ in done} == set(TABLES)


def clean_audit(output: str) -> tuple[int, int]:
    """Return the numbers of rows and marks in the last line that a demo printed, which found no fault."""
    last = output.splitlines()[-1]
    found = re.fullmatch(r"demo: rows=(\d+) resolved=(\d+) missing=0 extra=0 out_of_order=0(?: not_once=0)?", last)
    assert found is not None, last
    return int(found[1]), int(found[2])


@pytest.mark.slow
def test_the_demo_has_a_page_and_ends_with_a_clean_audit(tmp_path: Path) -> None:
    options = ["--directory", str(tmp_path), "--seconds", "2", "--stay"]
    command = [sys.executable, "-m", "cdc_core", "demo", "postgres", *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = []
        for line in demo.stdout:
            said.append(line)
            if line.startswith("Everything keeps running"):
                break
        [page] = re.findall(r"Watch it at (http://\S+)\n", "".join(said))
        eventually("the changefeed is on the page", lambda: "movr" in shown(page))
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, rest
    rows, marks = clean_audit(rest)
    assert rows > 5000
    assert marks > 0
    assert f"{tmp_path}/files" in rest


def shown(page: str) -> str:
    with suppress(OSError), urllib.request.urlopen(page, timeout=30) as answer:
        return str(answer.read(), "utf-8")
    return ""


@pytest.mark.slow
def test_the_kafka_demo_ends_with_a_clean_audit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cdc_core", "demo", "kafka", "--directory", str(tmp_path), "--seconds", "2"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows, marks = clean_audit(done.stdout)
    assert rows > 5000
    assert marks >= 3 * len(TABLES), "each partition of each topic has a mark"
    assert '"rider_id": "' in done.stdout
