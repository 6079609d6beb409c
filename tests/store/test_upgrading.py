"""Stores that older versions wrote are upgraded in place, with everything in them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from cdc_testing.imports import loaded_by
from cdc_testing.runs import at_once, eventually
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core import Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import RetryableError
from cdc_core.locality import Locality
from cdc_core.store.opening import open_engine
from cdc_core.store.progress import DeadLetter, PendingRecord, ProgressStore, store_url
from cdc_core.store.tables import GAPS, METADATA, SCHEMA_VERSION
from cdc_core.store.values import Pause

WRITTEN = Path(__file__).parent / "written"
LAST = SCHEMA_VERSION - 1
ROWS = {
    (1, LAST): "INSERT INTO cdc_changefeeds (name, feed_id, epoch, definition, created_at)"
    " VALUES ('run', 'a', 0, '{}', '2026-06-01T10:00:00+00:00')",
    (6, LAST): "INSERT INTO cdc_changefeeds (name, feed_id, epoch, definition, created_at)"
    " VALUES ('job', 'b', 0, '{}', '2026-06-01T10:00:00+00:00')",
    (2, 14): """UPDATE cdc_changefeeds SET paused = '{"reason":"no route","since":"2026-06-01T10:00:00+00:00"}'"""
    " WHERE name = 'run'",
    (2, 3): "UPDATE cdc_changefeeds SET unrecorded = '10.0000000000' WHERE name = 'run'",
    (4, LAST): "INSERT INTO cdc_gaps (name, mark) VALUES ('run', '10.0000000000')",
    (6, 14): "INSERT INTO cdc_jobs (name, state, owner, locality, clean, created)"
    " VALUES ('job', 'paused', 'ann', '', false, 1)",
    (15, LAST): "INSERT INTO cdc_jobs (name, state, owner, locality, is_clean, created, is_run)"
    " VALUES ('job', 'paused', 'ann', '', false, 1, false), ('run', 'paused', '', '', true, 1, true)",
}
"""A run and its gap, and a job, in the stores of the first to the last of these versions."""
TO_V14 = """
DELETE FROM cdc_jobs WHERE is_run;
DELETE FROM cdc_job_events WHERE name = 'paused';
DROP TABLE cdc_cluster;
ALTER TABLE cdc_jobs DROP COLUMN is_run;
ALTER TABLE cdc_jobs DROP COLUMN slot;
ALTER TABLE cdc_nodes DROP COLUMN cores;
ALTER TABLE cdc_nodes DROP COLUMN master;
ALTER TABLE cdc_nodes DROP COLUMN cores_used;
ALTER TABLE cdc_jobs RENAME COLUMN is_clean TO clean;
ALTER TABLE cdc_nodes RENAME COLUMN is_draining TO draining;
ALTER TABLE cdc_changefeeds ADD COLUMN paused TEXT;
UPDATE cdc_changefeeds SET paused = '{"reason":"no route","since":"2026-11-28T10:00:00.500+00:00"}'
    WHERE name = 'paused';
UPDATE cdc_store SET version = 14;
"""
TO_V2 = """
DROP INDEX ix_cdc_dead_letters_waiting;
CREATE INDEX ix_cdc_dead_letters_name ON cdc_dead_letters (name);
ALTER TABLE cdc_changefeeds DROP COLUMN emitted;
UPDATE cdc_store SET version = 2;
"""


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(url)
    yield engine
    engine.dispose()


def write(engine: sa.Engine, sql: str) -> None:
    of_sqlite = engine.dialect.name == "sqlite"
    number, double = ("INTEGER NOT NULL", "DOUBLE") if of_sqlite else ("BIGSERIAL", "DOUBLE PRECISION")
    with engine.begin() as connection:
        for statement in sql.replace("{number}", number).replace("{double}", double).split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def differences(engine: sa.Engine) -> list[object]:
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        return list(compare_metadata(context, METADATA))


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_the_tables_of_every_version_become_those_of_a_new_store(url: str, engine: sa.Engine, version: int) -> None:
    changes = (WRITTEN / "tables.sql").read_text().partition("-- 1\n")[2]
    (last,) = changes.split("\n-- ")[-1:]
    assert last.startswith(f"{SCHEMA_VERSION - 1}\n")
    made = changes.partition(f"\n-- {version + 1}\n")[0]
    write(engine, re.sub("^-- .*\n", "", made, flags=re.MULTILINE) + f"\nINSERT INTO cdc_store VALUES ({version});\n")
    write(engine, ";\n".join(sql for (since, until), sql in ROWS.items() if since <= version <= until))
    store = ProgressStore(url)
    assert store.cluster.poll().salt
    assert [(job.name, job.state) for job in store.jobs.all()] == ([("job", "paused")] if version >= 6 else [])
    assert store.jobs.runs() == ["run"]
    assert list(store.jobs.paused_runs()) == ["run"] * (version >= 2)
    with engine.connect() as connection:
        assert connection.execute(sa.select(GAPS.c.mark)).scalars().all() == ["10.0000000000"] * (version >= 2)
    assert store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality()).state == "running"
    assert differences(engine) == []
    store.close()


@pytest.mark.parametrize("version", [2, 3])
def test_a_store_is_upgraded_with_all_its_contents(url: str, engine: sa.Engine, version: int) -> None:
    write(engine, (WRITTEN / "v3.sql").read_text() + (TO_V2 if version == 2 else ""))
    store = ProgressStore(url)
    orders, users = store.changefeeds.all()
    assert (orders.name, orders.feed_id, orders.epoch, orders.high_water) == (
        "orders",
        "e98269503d94",
        2,
        Timestamp(50, 3),
    )
    assert orders.paused is not None
    assert orders.paused.reason == "a row was refused"
    assert (users.feed_id, users.epoch, users.definition["tables"]) == ("f82b43eaa435", 0, ["public.users"])
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.latest) == ({"lsn": 1234, "slot": "cdc_orders"}, Timestamp(60))
    assert (loaded.counters, loaded.emitted) == ({"rows": 10.0}, Timestamp(20 if version == 3 else 0))
    assert store.progress.load("users") is None
    assert store.planned_steps.load_plan("orders") == {"step": 7}
    assert [(letter.key, letter.error) for letter in store.dead_letters.of("orders")] == [("[2]", "refused")]
    assert store.statuses.load("orders") is None
    assert differences(engine) == []
    store.close()


def test_a_store_of_version_13_keeps_moments_from_then_on(url: str, engine: sa.Engine) -> None:
    before = ProgressStore(url)
    before.changefeeds.register("orders", DEFINITION)
    epoch = before.changefeeds.begin_attempt("orders")
    before.progress.save("orders", epoch, progress())
    before.close()
    write(engine, TO_V14 + "DROP TABLE cdc_moments;\nUPDATE cdc_store SET version = 13;\n")
    store = ProgressStore(url)
    assert store.moments.of("orders") == []
    store.statuses.save("orders", epoch, {"phase": "running"}, moment=True)
    assert [moment.rows for moment in store.moments.of("orders")] == [10]
    assert differences(engine) == []
    store.close()


def test_what_runs_of_version_14_have_left_is_of_runs_and_stays_paused(url: str, engine: sa.Engine) -> None:
    before = ProgressStore(url)
    for name in ("paused", "stopped"):
        before.changefeeds.register(name, DEFINITION)
        before.progress.save(name, before.changefeeds.begin_attempt(name), progress())
    before.jobs.create("job", DEFINITION, owner="ann", locality=Locality())
    before.close()
    write(engine, TO_V14)
    store = ProgressStore(url)
    assert [job.name for job in store.jobs.all()] == ["job"]
    assert store.jobs.paused_runs() == {"paused"}
    known = store.changefeeds.find("paused")
    assert known is not None
    assert known.paused == Pause(reason="no route", since=datetime(2026, 11, 28, 10, 0, 0, 500_000, tzinfo=UTC))
    store.claims.pause_run("stopped", 1, "a row was refused")
    for name in ("paused", "stopped"):
        assert Changefeeds(store).resume(name).state == "running"
        assert store.changefeeds.register(name, DEFINITION).epoch == 1
    assert differences(engine) == []
    store.close()


def test_a_changefeed_that_was_leaving_in_version_14_stays_paused_when_it_is_taken_back(
    url: str, engine: sa.Engine
) -> None:
    before = ProgressStore(url)
    before.changefeeds.register("paused", DEFINITION)
    kept = before.handover.give("paused", to="job 'paused' elsewhere", again="cdc create", owner="ann")
    before.close()
    write(engine, TO_V14.replace("DELETE FROM cdc_job_events", "SELECT 1 FROM cdc_job_events"))
    store = ProgressStore(url)
    store.handover.take_back("paused", kept)
    assert store.jobs.paused_runs() == {"paused"}
    known = store.changefeeds.find("paused")
    assert known is not None
    assert known.paused == Pause(reason="no route", since=datetime(2026, 11, 28, 10, 0, 0, 500_000, tzinfo=UTC))
    store.close()


@pytest.mark.parametrize("before", ["led before", "never led"])
def test_a_cluster_of_version_15_gets_a_part_of_its_secret(url: str, engine: sa.Engine, before: str) -> None:
    older = ProgressStore(url)
    one = older.nodes.join(replace(node("one"), cores=1, master="one:7077"), lease_s=600)
    led = older.cluster.poll(one)
    older.close()
    write(engine, "ALTER TABLE cdc_cluster DROP COLUMN salt;\nUPDATE cdc_store SET version = 15;\n")
    if before == "never led":
        write(engine, "DELETE FROM cdc_cluster;\n")
    store = ProgressStore(url)
    found = store.cluster.poll(one)
    assert (found.leader, found.epoch, len(found.salt)) == (one, led.epoch, 32)
    assert store.cluster.poll(one) == found
    assert found.salt != led.salt
    assert differences(engine) == []
    store.close()


def test_a_node_of_version_14_can_neither_adopt_nor_stay(url: str, engine: sa.Engine) -> None:
    ProgressStore(url).open()
    write(engine, TO_V14)
    asked = "SELECT name, clean FROM cdc_jobs", "UPDATE cdc_nodes SET expires = 0 WHERE name = '' RETURNING draining"
    for statement in asked:
        with engine.begin() as older:
            assert older.exec_driver_sql(statement).all() == []
    ProgressStore(url).open()
    for statement in asked:
        with engine.connect() as older, pytest.raises(sa.exc.DBAPIError, match=r"clean|draining"):
            older.exec_driver_sql(statement)


def test_an_upgraded_changefeed_continues(url: str, engine: sa.Engine) -> None:
    write(engine, (WRITTEN / "v3.sql").read_text())
    store = ProgressStore(url)
    assert store.changefeeds.register("orders", DEFINITION).feed_id == "e98269503d94"
    store.claims.resume_run("orders")
    epoch = store.changefeeds.begin_attempt("orders")
    assert epoch == 3
    letter = DeadLetter(table="public.orders", key="[3]", updated=Timestamp(70), stage="sink", error="refused")
    store.progress.save("orders", epoch, progress(80), delivered=[{"path": "d"}], dead_letters=[letter])
    assert store.marks.prepare("orders", epoch, Timestamp(30), records=True)[0] == [
        PendingRecord(mark=Timestamp(20), previous=None, delivered=({"path": "b"},)),
        PendingRecord(mark=Timestamp(30), previous=None, delivered=({"path": "c"}, {"path": "d"})),
    ]
    store.marks.save_emitted("orders", epoch, Timestamp(30), recorded=True)
    ((waiting,), _) = store.marks.prepare("orders", epoch, Timestamp(40), records=True)
    assert waiting.previous == Timestamp(30)
    assert [letter.number for letter in store.dead_letters.of("orders")] == [2, 3]
    store.statuses.save("orders", epoch, {"state": "running"})
    store.close()


def test_a_store_of_the_first_version_is_upgraded(url: str, engine: sa.Engine) -> None:
    write(engine, (WRITTEN / "v1.sql").read_text())
    store = ProgressStore(url)
    assert store.changefeeds.register("orders", DEFINITION).feed_id == "e98269503d94"
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert loaded.token == {"lsn": 1234, "slot": "cdc_orders"}
    epoch = store.changefeeds.begin_attempt("orders")
    ((waiting,), _) = store.marks.prepare("orders", epoch, Timestamp(70), records=True)
    assert waiting.previous is None  # what the older version delivered is in no record
    assert differences(engine) == []
    store.close()


def test_several_may_open_an_older_store_at_once(url: str, engine: sa.Engine) -> None:
    write(engine, (WRITTEN / "v3.sql").read_text())

    def begin() -> int:
        with closing(ProgressStore(url)) as store:
            return store.changefeeds.begin_attempt("orders")

    assert sorted(at_once(begin)) == [3, 4, 5, 6]


def test_a_gap_that_an_older_process_is_writing_is_kept(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engine = open_engine(database)
    request.addfinalizer(engine.dispose)
    write(engine, (WRITTEN / "v3.sql").read_text())
    store = ProgressStore(database)
    upgrading = threading.Thread(target=store.open)
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'cdc_changefeeds'::regclass")
    with engine.begin() as older:
        older.exec_driver_sql("UPDATE cdc_changefeeds SET unrecorded = '70.0000000000' WHERE name = 'users'")
        upgrading.start()
        eventually("the upgrade to wait", lambda: older.execute(waiting).scalar_one() > 0)
    upgrading.join()
    with engine.begin() as connection:
        found = connection.exec_driver_sql("SELECT mark FROM cdc_gaps WHERE name = 'users'").scalars().all()
    assert found == ["70.0000000000"]
    store.close()


def test_another_store_that_is_seen_too_is_left_alone(database: str) -> None:
    other = ProgressStore(database)
    before = other.cluster.poll()
    mine = f"{database}?options=-csearch_path%3Dmine,public"
    engine = open_engine(mine)
    write(engine, "CREATE SCHEMA mine;\n" + (WRITTEN / "v3.sql").read_text())
    store = ProgressStore(mine)
    assert [known.name for known in store.changefeeds.all()] == ["orders", "users"]
    assert store.cluster.poll().salt not in ("", before.salt)
    assert other.cluster.poll() == before
    assert other.changefeeds.all() == []
    assert set(sa.inspect(engine).get_table_names(schema="mine")) == METADATA.tables.keys()
    for opened in (store, other):
        opened.close()
    engine.dispose()


def test_an_upgrade_that_fails_changes_nothing(url: str, engine: sa.Engine) -> None:
    write(engine, (WRITTEN / "v3.sql").read_text() + "CREATE TABLE cdc_gaps (name TEXT);\n")
    store = ProgressStore(url)
    with pytest.raises(RetryableError, match="cdc_gaps"):
        store.progress.load("orders")
    write(engine, "DROP TABLE cdc_gaps;\n")
    assert store.changefeeds.begin_attempt("orders") == 3
    store.close()


def test_opening_a_store_of_this_version_loads_no_migrations(tmp_path: Path) -> None:
    code = f"from cdc_core.store.progress import ProgressStore as S; S({store_url(tmp_path)!r}).open()"
    assert "alembic" not in loaded_by(code)
    assert "alembic" not in loaded_by(code)
