"""No failure of a job costs its position: what its message says is done, and it goes on without a loss."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.audit import replay
from cdc_testing.documented_role import ROLE
from cdc_testing.files import last_resolved
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import Sql, clock

from cdc_core.cli.main import main
from cdc_core.store.reports import Report, reports


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What ends a job: *happens* with its table, while its node runs it."""

    happens: str
    says: str
    options: Mapping[str, Any] = field(default_factory=dict)
    does: str = ""
    """What is done beside the commands that the message names."""


CAUSES = {
    "schema_stop": Cause(
        happens="ALTER TABLE {} ADD note text DEFAULT 'none'",
        says="schema_change_policy is 'stop'",
        options={"schema_change_policy": "stop"},
    ),
    "truncated": Cause(happens="TRUNCATE {}", says="was truncated"),
    "too_large": Cause(
        happens="INSERT INTO {} VALUES (7, repeat('x', 2000000))",
        says="more than max_row_bytes",
        options={"max_row_bytes": "1MB"},
        does="cdc alter too_large --set max_row_bytes=9MB",
    ),
    "slot_lost": Cause(happens="", says="cdc rescan slot_lost --all --new-slot"),
}


def commands(text: str) -> list[str]:
    """Return the commands that *text* names, those of its first remedy if it has several."""
    found = re.findall(r"`(cdc [^`]+)`", text)
    return found[: next((n + 1 for n, each in enumerate(found) if each.startswith("cdc resume")), len(found))]


@pytest.mark.slow
def test_a_job_that_failed_goes_on_when_its_message_is_obeyed(
    nodes: Nodes,
    sql: Sql,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CDC_STORE", nodes.url)
    nodes.begin("one")
    for name, cause in CAUSES.items():
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, text text)")
        nodes.create(name, database, [f"public.{name}"], f"file://{tmp_path / name}", **cause.options)
    for name in CAUSES:
        nodes.until_delivering(name)
        sql.execute(f"INSERT INTO {name} VALUES (1)")
    delivers(nodes, tmp_path, clock(database))
    marks = {name: nodes.high_water(name) for name in CAUSES}
    for name, cause in CAUSES.items():
        if cause.happens:
            sql.execute(cause.happens.format(name))
    lose_slot(sql, nodes, "slot_lost")
    for name, cause in CAUSES.items():
        job = nodes.until(name, "failed")
        assert cause.says in (job.reason or ""), job.reason
        assert nodes.high_water(name) >= marks[name]
        assert (
            name == "slot_lost"
            or sql.execute(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name LIKE %s", [f"%{feed_id(nodes, name)}%"]
            ).fetchall()
        ), "the source started a new history"
        sql.execute(f"INSERT INTO {name} VALUES (2)")
        for command in [*([cause.does] if cause.does else []), *commands(job.reason or "")]:
            assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
        if nodes.job(name).state == "failed":
            assert main(["resume", name]) == 0, capsys.readouterr().err
    delivers(nodes, tmp_path, clock(database))
    for name in CAUSES:
        keys = set(replay(tmp_path / name).tables[name])
        assert {"[1]", "[2]"} <= keys, name


def feed_id(nodes: Nodes, name: str) -> str:
    found = nodes.store.changefeeds.find(name)
    assert found is not None
    return found.feed_id


def lose_slot(sql: Sql, nodes: Nodes, name: str) -> None:
    """Drop the slot of the job, whatever its node does meanwhile."""

    def dropped() -> bool:
        mine = sql.execute(
            "SELECT slot_name, active_pid FROM pg_replication_slots WHERE slot_name LIKE %s",
            [f"%{feed_id(nodes, name)}%"],
        ).fetchall()
        for slot, pid in mine:
            with suppress(psycopg.errors.ObjectInUse):
                if pid is not None:
                    sql.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
                sql.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        return not mine

    nodes.eventually("the slot is gone", dropped)


def delivers(nodes: Nodes, directory: Path, now: Any) -> None:
    for name in CAUSES:
        nodes.eventually(f"{name} delivers", lambda name=name: last_resolved(directory / name) >= now)


def test_a_job_retries_until_a_password_that_was_changed_is_right_at_the_server_or_in_its_file(
    nodes: Nodes, sql: Sql, database: str, tmp_path: Path
) -> None:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    sql.execute(f"CREATE ROLE mislaid LOGIN REPLICATION PASSWORD 'secret' IN ROLE {ROLE}")
    files, uri = tmp_path / "files", re.sub("//[^@]*@", "//mislaid:secret@", database)
    seen: list[Report] = []

    def change(password: str) -> None:
        sql.execute(f"ALTER ROLE mislaid PASSWORD '{password}'")
        sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'mislaid'")

    def retried(times: int) -> bool:
        """Whether it has failed so often; `seen` has all that was seen."""
        seen.extend(found := reports(nodes.store))
        return (retrying := found[0].retrying) is not None and retrying.failures >= times

    nodes.begin("one")
    nodes.create("orders", uri, ["public.orders"], f"file://{files}", max_retry_backoff="1s")
    nodes.until_delivering("orders")
    change("another")
    nodes.eventually("it is retried", lambda: retried(1))
    seen.clear()
    nodes.eventually("it has failed again", lambda: retried(3))
    assert {found.state for found in seen} == {"retrying"}, "also while attempts run"
    assert len({found.retrying.since for found in seen if found.retrying is not None}) == 1
    assert "password authentication failed" in seen[-1].retrying.error
    assert nodes.job("orders").state == "running"
    sql.execute("INSERT INTO orders VALUES (1)")
    change("secret")
    now = clock(database)
    nodes.eventually("it delivers", lambda: last_resolved(files) >= now)
    nodes.eventually("a step is saved", lambda: reports(nodes.store)[0].state == "running")
    change("another")
    nodes.eventually("it is retried", lambda: retried(1))
    source = tmp_path / "nodes" / "orders.source"
    source.write_text(source.read_text().replace(":secret@", ":another@"))
    now = clock(database)
    nodes.eventually("it delivers", lambda: last_resolved(files) >= now)
    nodes["one"].end()
    assert set(replay(files).tables["orders"]) == {"[1]"}
