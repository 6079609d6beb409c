"""`cdc sql`: statements do what the commands for jobs do."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created, ended, save
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import main
from cdc_core.jobs.schedules import Schedules
from cdc_core.store.progress import ProgressStore

Capture = pytest.CaptureFixture[str]


def sql(cdc: Cdc, *arguments: str, source: str = "paper://user:${PAPER_PASSWORD}@desk/db") -> str:
    return cdc("sql", "--source", source, *arguments).out


@pytest.fixture
def create(file: Path) -> str:
    return f"CREATE CHANGEFEED FOR TABLE public.counter INTO 'shelf://room' WITH control = '{file.parent}'"


def test_a_changefeed_becomes_a_job_named_after_its_tables(store: ProgressStore, create: str, cdc: Cdc) -> None:
    assert sql(cdc, create) == "job_id\n-------\ncounter\n(1 row)\n"
    assert sql(cdc, "--format", "csv", "--owner", "bob", f"{create}, updated") == "job_id\ncounter_2\n"
    assert json.loads(sql(cdc, "--format", "json", f"{create}, name = 'mine'")) == {"job_id": "mine"}
    assert {job.name: job.owner for job in store.jobs.all()} == {"counter": "ann", "counter_2": "bob", "mine": "ann"}
    known = store.changefeeds.find("counter_2")
    assert known is not None
    assert known.definition["written"]["source"] == "paper://user:${PAPER_PASSWORD}@desk/db"
    assert known.definition["written"]["options"]["updated"] is True


def test_what_cannot_be_a_job_is_refused_as_cdc_create_does(
    store: ProgressStore, create: str, file: Path, cdc: Cdc
) -> None:
    assert "name it with --source URI" in cdc.sentence("sql", create)
    source = ("sql", "--source", "paper://user:hunter3@desk/db")
    assert "'source' has a secret in plain text" in cdc.sentence(*source, create)
    assert "has no option 'updatd'; did you mean 'updated'?" in cdc.sentence(*source, f"{create}, updatd")
    schedule = "CREATE SCHEDULE s FOR CHANGEFEED t RECURRING '@daily'"
    assert "has no sink to deliver to" in cdc.sentence(*source, schedule)
    sql(cdc, f"{create}, name = 'mine'")
    again = ("sql", "--source", "paper://desk/db", f"{create}, name = 'mine'")
    assert "changefeed 'mine' is already a job (running)" in cdc.sentence(*again)
    (file.parent / "check").write_text("ConfigError table public.counter does not exist")
    assert cdc.sentence("sql", "--source", "paper://desk/db", create) == "table public.counter does not exist"
    assert [job.name for job in store.jobs.all()] == ["mine"]


def test_jobs_are_paused_resumed_canceled_and_given_away(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    created(store, "users")
    printed = cdc("sql", "PAUSE JOB 'orders' WITH REASON = 'maintenance'")
    assert printed.out.splitlines()[2] == "orders | pause-requested"
    assert printed.err == "NOTICE: job 'orders': node one will pause it\n"
    ended(store, "stopped")
    assert [event.reason for event in store.jobs.events("orders")][-1] == "maintenance"
    assert "orders | running" in cdc("sql", "RESUME JOB orders").out
    assert "orders | running" in cdc("sql", "ALTER JOB orders OWNER TO bob").out
    assert cdc("sql", "--format", "csv", "PAUSE ALL CHANGEFEED JOBS; CANCEL JOBS orders, users").out == (
        "job_id,status\norders,paused\nusers,pause-requested\n"
        "job_id,status\norders,cancel-requested\nusers,cancel-requested\n"
    )
    assert cdc.sentence("sql", "RESUME JOB orders") == (
        "job 'orders' is about to end (cancel-requested); wait until it has ended"
    )


def paused(store: ProgressStore, create: str, cdc: Cdc, *, begun: bool) -> None:
    """Create the job 'orders', let a node begin it, and pause it."""
    sql(cdc, f"{create}, name = orders")
    if begun:
        one = store.nodes.join(node("one"), lease_s=600)
        adopted = store.claims.adopt("orders", one)
        assert adopted is not None
        store.progress.save("orders", adopted.epoch, progress())
    cdc("sql", "PAUSE JOB orders")
    if begun:
        ended(store, "stopped")


def test_a_job_is_altered_as_by_cdc_alter(store: ProgressStore, create: str, file: Path, cdc: Cdc) -> None:
    paused(store, create, cdc, begun=True)
    change = "ADD public.a WITH initial_scan = 'yes' ADD public.b DROP public.counter SET resolved = '10s', diff"
    printed = cdc("sql", "--format", "json", f"ALTER CHANGEFEED orders {change}, sink = 'shelf://hall'")
    row = json.loads(printed.out)
    assert row["job_description"].startswith("CREATE CHANGEFEED FOR TABLE public.a, public.b INTO 'shelf://hall' WITH")
    assert row["job_description"].endswith("diff = 'true', resolved = '10s'")
    assert printed.err.startswith("NOTICE: job 'orders' is altered: added public.a, public.b; dropped public.counter;")
    assert store.rescans.initial_scans("orders") == {"public.a": True, "public.b": False}
    assert "resolved" in cdc("sql", "ALTER CHANGEFEED orders UNSET diff DROP public.a").out
    assert store.rescans.initial_scans("orders") == {"public.b": False}
    assert "did you mean 'resolved'?" in cdc.sentence("sql", "ALTER CHANGEFEED orders SET resolvd = '1s'")
    Changefeeds(store).resume("orders")
    one = next(each for each in store.nodes.living())
    assert store.claims.adopt("orders", one) is not None
    for change in ("SET diff", "ADD public.c"):  # the second one is of what the first one has asked for
        printed = cdc("sql", "--format", "json", f"ALTER CHANGEFEED orders {change}")
        assert "node one finishes the running step first" in printed.err
    assert json.loads(printed.out)["job_description"] == (
        "CREATE CHANGEFEED FOR TABLE public.b, public.c INTO 'shelf://hall' WITH"
        f" control = '{file.parent}', diff = 'true', resolved = '10s'"
    )
    assert store.claims.settle("orders", one, "stopped") == "running"
    assert store.rescans.initial_scans("orders") == {"public.b": False, "public.c": False}


def test_tables_that_are_added_before_the_job_begins_are_scanned_as_all_others(
    store: ProgressStore, create: str, cdc: Cdc
) -> None:
    paused(store, create, cdc, begun=False)
    assert "public.a" in cdc("sql", "ALTER CHANGEFEED orders ADD public.a").out
    assert store.rescans.initial_scans("orders") == {}
    assert "has not started yet" in cdc.sentence("sql", "ALTER CHANGEFEED orders ADD public.b WITH initial_scan = 'no'")


def test_schedules_are_created_shown_paused_resumed_and_dropped(
    store: ProgressStore, create: str, file: Path, cdc: Cdc
) -> None:
    feed = create.replace("CREATE CHANGEFEED FOR", "CHANGEFEED")
    label = f"CREATE SCHEDULE IF NOT EXISTS 'nightly' FOR {feed} RECURRING '@daily'"
    options = "WITH SCHEDULE OPTIONS first_run = 'now', on_previous_running = skip, time_zone = 'Europe/Berlin'"
    [row] = csv.DictReader(io.StringIO(sql(cdc, "--format", "csv", f"{label} {options}")))
    assert (row["schedule_id"], row["status"], row["schedule"]) == ("nightly", "ACTIVE", "@daily")
    printed = cdc("sql", "--source", "paper://desk/db", label)
    assert "(0 rows)" in printed.out
    assert printed.err == "NOTICE: schedule 'nightly' already exists\n"
    assert "counter     | counter | ACTIVE" in sql(cdc, f"CREATE SCHEDULE FOR {feed} RECURRING '@hourly'")
    [counter, nightly] = map(json.loads, cdc("sql", "--format", "json", "SHOW SCHEDULES").out.splitlines())
    assert (counter["recurrence"], nightly["recurrence"]) == ("@hourly", "@daily (Europe/Berlin)")
    assert nightly["command"].endswith("initial_scan = 'only'")
    assert list(nightly) == [
        *("id", "label", "schedule_status", "next_run", "state", "recurrence", "jobsrunning", "owner", "created"),
        "command",
    ]
    [name] = Schedules(store).tick()
    assert name.startswith("nightly-")
    shown = json.loads(cdc("sql", "--format", "json", "PAUSE SCHEDULE nightly").out)
    assert (shown["schedule_status"], shown["jobsrunning"], shown["state"]) == ("PAUSED", "1", "requested by ann")
    assert "ACTIVE" in cdc("sql", "RESUME SCHEDULE nightly; SHOW SCHEDULE nightly").out
    assert "(2 rows)" in cdc("sql", "DROP SCHEDULES nightly, counter").out
    assert "there is no schedule 'nightly'" in cdc.sentence("sql", "SHOW SCHEDULE nightly")
    diff = f"CREATE SCHEDULE a FOR {feed}, diff RECURRING '@daily'"
    assert "cannot be scheduled with option 'diff'" in cdc.sentence("sql", "--source", "paper://desk/db", diff)


def test_jobs_are_shown_with_the_columns_of_cockroachdb(store: ProgressStore, create: str, cdc: Cdc) -> None:
    sql(cdc, f"{create}, resolved = '10s', topic = 'a_{{table}}', name = orders")
    one = store.nodes.join(node("one"), lease_s=600)
    assert store.claims.adopt("orders", one) is not None
    save(store, "orders")
    [shown] = map(json.loads, sql(cdc, "--format", "json", "SHOW CHANGEFEED JOBS").splitlines())
    assert list(shown) == [
        *("job_id", "description", "user_name", "status", "running_status", "created", "started", "finished"),
        *("modified", "high_water_timestamp", "readable_high_water_timestamptz", "error", "sink_uri"),
        *("full_table_names", "topics", "format"),
    ]
    assert shown["description"].startswith("CREATE CHANGEFEED FOR TABLE public.counter INTO 'shelf://room' WITH ")
    assert shown["description"].endswith("resolved = '10s', topic = 'a_{table}'")
    assert shown["running_status"] == f"running: resolved={shown['high_water_timestamp']}"
    assert shown["readable_high_water_timestamptz"] == "1970-01-01T00:00:00.000000+00:00"
    assert (shown["topics"], shown["finished"], shown["error"]) == ("a_counter", None, None)
    assert shown["full_table_names"] == "shop.public.counter"  # as the source has said
    [job] = csv.DictReader(io.StringIO(cdc("sql", "--format", "csv", "SHOW JOB 'orders'").out))
    assert (job["job_type"], job["coordinator_id"], job["user_name"]) == ("CHANGEFEED", "one", "ann")
    assert "there is no job 'order'; did you mean 'orders'?" in cdc.sentence("sql", "SHOW CHANGEFEED JOB 'order'")
    store.changefeeds.register("run", DEFINITION)
    assert "'run' is run by `cdc run` and is not a job; `cdc show run`" in cdc.sentence("sql", "SHOW JOB 'run'")


def test_tables_are_shown_in_full_and_altered_by_any_of_their_names(
    store: ProgressStore, create: str, cdc: Cdc
) -> None:
    def full_names() -> str:
        [shown] = map(json.loads, cdc("sql", "--format", "json", "SHOW CHANGEFEED JOBS").out.splitlines())
        return str(shown["full_table_names"])

    paused(store, create.replace("public.counter", "counter, app.t"), cdc, begun=True)
    assert full_names() == "shop.public.counter, shop.app.t"
    cdc("sql", """ALTER CHANGEFEED orders ADD db.public."Odd Name" WITH initial_scan = 'yes' DROP public.counter""")
    assert full_names() == 'shop.app.t, shop.public."Odd Name"'
    assert store.rescans.initial_scans("orders") == {'public."Odd Name"': True}
    cdc("alter", "orders", "--add", "db.public.t3", "--no-initial-scan", "--drop", "db.app.t")
    assert "already has the table 't3', as 'public.t3'" in cdc.sentence("sql", "ALTER CHANGEFEED orders ADD t3")
    cdc("sql", """ALTER CHANGEFEED orders DROP t3 ADD public.*""")
    assert store.rescans.initial_scans("orders") == {'public."Odd Name"': True, "public.*": False}
    assert full_names() == "shop.public.orders, shop.public.users"  # as the source has said


def test_only_errors_are_shown_as_errors(store: ProgressStore, cdc: Cdc) -> None:
    for name in ("failed", "paused", "lunch", "gone", "done", "left"):
        created(store, name)
    ended(store, "failed", "failed", reason="the sink is full")
    ended(store, "paused", "paused", reason="a row is refused")
    ended(store, "succeeded", "done")
    Changefeeds(store).pause("lunch", "lunch")
    for name in ("gone", "left"):
        Changefeeds(store).cancel(name, "no use")
        ended(store, "stopped", name)
    ended(store, "reverted", "gone")
    ended(store, "not reverted", "left", reason="no route")
    shown = map(json.loads, cdc("sql", "--format", "json", "SHOW JOBS").out.splitlines())
    assert {each["job_id"]: (each["running_status"], each["error"]) for each in shown} == {
        "done": (None, None),
        "failed": (None, "the sink is full"),
        "gone": ("no use", None),
        "left": (None, "no route"),
        "lunch": ("waiting for node one to stop it", None),
        "paused": (None, "a row is refused"),
    }


def test_the_statements_of_a_file_are_read_before_the_first_one_is_executed(
    store: ProgressStore, create: str, tmp_path: Path, capsys: Capture, cdc: Cdc
) -> None:
    script = tmp_path / "jobs.sql"
    script.write_text(f"{create};\nPAUSE JBO counter;\n")
    assert main(["sql", "-f", str(script), "--source", "paper://desk/db"]) == 2
    assert "statement, line 2, column 7: JOB is missing" in capsys.readouterr().err
    assert "there is no progress store" in cdc.refused("sql", "SHOW JOBS")
    script.write_text(f"\ufeff-- a job\n{create};\nRESUME JOB counte;\nPAUSE JOB counter;")
    told = cdc.refused("sql", "-f", script, "--source", "paper://desk/db")
    assert "the statement on line 3 failed; the statements after it were not executed" in told
    assert "there is no job 'counte'; did you mean 'counter'?" in told
    [job] = store.jobs.all()
    assert job.state == "running"


def test_wrong_usage_is_refused(store: ProgressStore, tmp_path: Path, cdc: Cdc) -> None:
    assert "give either statements or --file" in cdc.sentence("sql", "SHOW JOBS", "-f", "x.sql")
    assert "cannot be read" in cdc.sentence("sql", "-f", tmp_path / "x.sql")
    assert "there is no statement in the text" in cdc.sentence("sql", " -- nothing")
    (tmp_path / "x.sql").write_bytes(b"\xff")
    assert "is not UTF-8 text" in cdc.sentence("sql", "-f", tmp_path / "x.sql")
