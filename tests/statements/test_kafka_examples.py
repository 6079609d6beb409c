"""The examples of CockroachDB's manual, with our source in the place of CockroachDB."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.kafka_fixtures import Kafka
from sqlalchemy import make_url

from cdc_core.cli.main import main

pytestmark = pytest.mark.slow
Capture = pytest.CaptureFixture[str]
TABLES = """
    CREATE TABLE office_dogs (id int PRIMARY KEY, name text);
    CREATE TABLE users (id int PRIMARY KEY, city text);
    CREATE SCHEMA movr;
    CREATE TABLE movr.vehicles (id int PRIMARY KEY, owner_id int, city text, type text, status text);
    ALTER TABLE users REPLICA IDENTITY FULL;
    ALTER TABLE movr.vehicles REPLICA IDENTITY FULL;
    CREATE TABLE movr.rides (id int PRIMARY KEY, vehicle_id int, revenue numeric(10, 2));
"""
EXAMPLES = {
    "CREATE CHANGEFEED FOR TABLE office_dogs INTO 'kafka://localhost:9092';": "office_dogs",
    "CREATE CHANGEFEED FOR TABLE movr.vehicles, movr.rides, users INTO 'kafka://localhost:9092?topic_prefix=bar_'"
    " WITH updated, resolved;": "vehicles_rides_users",
    "CREATE CHANGEFEED FOR TABLE users INTO 'kafka://localhost:9092' WITH updated, resolved='10s', diff,"
    " min_checkpoint_frequency='10s', envelope=wrapped, format=json, on_error='pause';": "users",
    "CREATE CHANGEFEED FOR users INTO 'kafka://localhost:9092' WITH envelope='key_only', no_initial_scan;": "users_2",
    "CREATE CHANGEFEED FOR TABLE movr.rides INTO 'kafka://localhost:9092' WITH kafka_sink_config ="
    ' \'{"Flush": {"MaxMessages": 1000, "Frequency": "1s"}, "RequiredAcks": "ONE", "Compression": "GZIP"}\';': "rides",
    "CREATE CHANGEFEED FOR TABLE movr.rides INTO 'kafka://localhost:9092' WITH initial_scan = 'only';": "rides_2",
    "CREATE CHANGEFEED FOR TABLE movr.rides INTO 'file:///bucket?partition_format=hourly' WITH format = csv,"
    " initial_scan = 'only', compression = 'gzip';": "rides_3",
    "CREATE CHANGEFEED FOR TABLE movr.rides INTO 'file:///bucket' WITH format = 'parquet', resolved = '1m',"
    " schema_change_events = column_changes, schema_change_policy = stop;": "rides_4",
    "CREATE CHANGEFEED INTO 'kafka://localhost:9092' WITH updated AS SELECT owner_id, city FROM movr.vehicles"
    " WHERE status = 'lost' AND type = 'scooter';": "vehicles",
    "CREATE CHANGEFEED INTO 'file:///bucket' WITH format = 'json', envelope = 'wrapped' AS"
    " SELECT id, event_op(), (cdc_prev).status AS old_status FROM movr.vehicles"
    " WHERE event_op() = 'update' AND (cdc_prev).status = 'in_use';": "vehicles_2",
    "CREATE CHANGEFEED FOR TABLE users INTO 'external://kafka_connection';": None,
    "CREATE CHANGEFEED FOR TABLE users INTO 'kafka://localhost:9092' WITH split_column_families;": None,
    "CREATE CHANGEFEED FOR TABLE users INTO 'gcpubsub://project?region=us-east1';": None,
    "CREATE CHANGEFEED FOR TABLE users INTO 'kafka://localhost:9092' WITH unordered, key_column = 'city';": "users_3",
}
"""Each statement, and the name of its job: None where it is refused."""


def test_the_examples_of_the_manual_run_or_are_refused_by_name(
    database: str,
    kafka_broker: Kafka,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.setenv("CDC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PASSWORD", str(make_url(database).password))
    source = documented(database).replace(str(make_url(database).password), "${PASSWORD}")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES)

    def run(text: str) -> tuple[int, str, str]:
        text = text.replace("localhost:9092", kafka_broker.bootstrap_servers).replace("/bucket", str(tmp_path / "out"))
        text = text.replace("bar_", topic_prefix)
        status = main(["sql", "--source", source, "--format", "json", text])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    for text, name in EXAMPLES.items():
        status, out, told = run(text)
        if name is None:
            assert status == 2, text
        else:
            assert (status, told.startswith("NOTICE: job")) == (0, True), f"{text}\n{told}"
            assert json.loads(out) == {"job_id": name}
    _, out, _ = run("SHOW CHANGEFEED JOBS")
    jobs = {row["job_id"]: row for row in map(json.loads, out.splitlines())}
    assert set(jobs) == {name for name in EXAMPLES.values() if name is not None}
    assert jobs["vehicles_rides_users"]["topics"] == ", ".join(
        f"{topic_prefix}{table}" for table in ("vehicles", "rides", "users")
    )
    assert jobs["rides_3"]["format"] == "csv"
    assert run("PAUSE JOB users;")[0] == 0
    altered = (
        "ALTER CHANGEFEED 'users' ADD movr.rides, movr.vehicles DROP users SET resolved='20s', envelope=row"
        " UNSET diff, updated"
    )
    status, out, told = run(altered)
    assert status == 0, told
    assert re.search(r"FOR TABLE movr.rides, movr.vehicles INTO .*resolved = '20s'", json.loads(out)["job_description"])
    assert run("RESUME JOB users; CANCEL JOB users")[0] == 0
    schedule = (
        "CREATE SCHEDULE vehicles_export FOR CHANGEFEED TABLE users, movr.vehicles INTO 'file:///bucket' WITH"
        " format=csv RECURRING '@hourly' WITH SCHEDULE OPTIONS first_run=now,"
        " on_execution_failure=retry, on_previous_running=skip;"
    )
    status, out, told = run(schedule)
    assert (status, json.loads(out)["label"]) == (0, "vehicles_export"), told
