"""An upgrade under load: `python tests/jobs/upgrade.py CHECKOUT`, a checkout of an older version of this repository.

Its nodes run 20 jobs and are replaced by nodes of this version, which get their directories: one by one, if both have
the same version of the store. One is drained; one is frozen, asked for things, and killed. Exit status 0 when no
consumer lost anything, and whatever rested is as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[0] = str(TESTS)  # as pytest's `pythonpath` does

import psycopg  # noqa: E402
from cdc_rangefeed_postgres.demo.audit import audit  # noqa: E402
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres  # noqa: E402
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank  # noqa: E402
from cdc_testing.copied_postgres import CopiedPostgres  # noqa: E402
from cdc_testing.documented_role import documented  # noqa: E402
from cdc_testing.files import last_resolved  # noqa: E402
from cdc_testing.nodes import Nodes  # noqa: E402
from cdc_testing.postgres import clock  # noqa: E402

from cdc_core import Timestamp  # noqa: E402
from cdc_core.changefeeds.service import Alteration, Changefeeds  # noqa: E402
from cdc_core.store.tables import SCHEMA_VERSION  # noqa: E402

Kept = Mapping[str, list[dict[str, Any]]]
"""What a store keeps of a changefeed: rows by table."""
_SOURCE = {"fsync": "off", "max_connections": "400", "max_replication_slots": "60", "max_wal_senders": "60"}
RUNNING = tuple(f"run{number}" for number in range(10))
RESTING = {
    "paused": "paused",
    "asleep": "paused",
    "altered": "paused",
    "rescanned": "paused",
    "held": "paused",
    "failed": "failed",
    "scan": "succeeded",
    "gone": "canceled",
    "unreverted": "revert-failed",
    "pinned": "waiting",
}
"""The states of the other jobs. `held` has an error."""
_TABLES = {"held": ["public.cracked1"], "failed": ["public.cracked2"], "unreverted": ["public.extra"]}
_OPTIONS = {
    "held": {"schema_change_policy": '"stop"', "on_error": '"pause"'},
    "failed": {"schema_change_policy": '"stop"'},
    "scan": {"initial_scan": '"only"'},
    "pinned": {"execution_locality": '"region=b"'},
}
_KEPT = ("cdc_jobs", "cdc_changefeeds", "cdc_job_events", "cdc_events", "cdc_rescans", "cdc_gaps", "cdc_delivered")
_STATE = "SELECT state FROM cdc_jobs WHERE name = %s"
_JOINED = "SELECT count(*)::int FROM cdc_nodes WHERE name = %s"
_JOBS_OF = (
    "SELECT name FROM cdc_jobs JOIN (SELECT node_id, name AS node FROM cdc_nodes) n USING (node_id)"
    " WHERE node = %s AND state = 'running' ORDER BY name"
)
_REQUESTED = {"paused": "pause-requested", "altered": "pause-requested", "canceled": "cancel-requested"}
_ALTERS_RUNNING = 15
"""From this version of the store on, `cdc alter` takes a job that runs."""
_LIMIT_S = 900.0
_LONG = ("--lease", "5m", "--heartbeat", "1s", "--poll", "250ms")
"""A frozen node keeps its jobs while it is asked for things."""


def python_path(checkout: Path) -> str:
    """Return the PYTHONPATH by which a process runs what is in *checkout*."""
    sources = [each for kind in ("plugins", "sinks", "encoders") for each in sorted(checkout.glob(f"{kind}/*/src"))]
    return os.pathsep.join(map(str, [checkout, checkout / "tests", *sources]))


class Upgrade:
    """The older version at *checkout*, then this one, with the same store and directories below *directory*."""

    def __init__(self, checkout: Path, directory: Path, source: str, store: str) -> None:
        self._directory, self._source, self._store = directory, source, store
        self._older_path = python_path(checkout)
        self._older = Nodes(directory / "nodes", store, spark=False, python_path=self._older_path)
        self._newer = Nodes(directory / "nodes", store, spark=False)
        self._out = directory / "out"
        (directory / "source").write_text(documented(source))
        (directory / "other-source").write_text(documented(source))

    def run(self) -> None:
        """Have the one version take over from the other. Raises: AssertionError."""
        open_bank(self._source)
        with psycopg.connect(self._source, autocommit=True) as sql:
            for table in ("cracked1", "cracked2", "extra"):
                sql.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
                sql.execute(f"INSERT INTO {table} SELECT generate_series(1, 100)")
        with self._older, self._newer:
            with Bank(self._source, pause_s=0.1):
                self._prepare()
                before = {name: self._kept(name) for name in (*RUNNING, *RESTING)}
                schedules = self._schedules()
                with self._cdc_run(self._older_path):
                    asked = self._replace_nodes()
                with self._cdc_run(None):
                    self._require_as_before(before, asked)
                    assert self._schedules() == schedules
            say("what rested is as it was")
            self._deliver_all(asked)

    def _prepare(self) -> None:
        """Have the older version bring each job where it rests, or runs."""
        file = self._directory / "jobs.toml"
        file.write_text("\n".join(self._written(name) for name in (*RUNNING, *RESTING)))
        for name in ("one", "two", "three"):
            self._older.begin(name, locality="region=b" if name == "three" else "region=a", options=_LONG)
        for name in ("one", "two", "three"):
            self._older.eventually(f"{name} joins", partial(self._finds, _JOINED, name, 1))
        self._older_cdc("create", str(file))
        self._older_cdc("pause", "asleep")
        self._older_cdc("schedule", "create", "nightly", str(file), "scan", "--cron", "0 0 1 1 *", "--first-run", "now")
        self._older_cdc("schedule", "create", "weekly", str(file), "scan", "--cron", "@weekly")
        self._older_cdc("schedule", "pause", "weekly", "--reason", "holidays")
        for name in (*RUNNING, *(RESTING.keys() - {"scan", "asleep"})):
            self._until_moving(name)
        say("all jobs deliver")
        with psycopg.connect(self._source, autocommit=True) as sql:
            for table in ("cracked1", "cracked2"):
                sql.execute(f"ALTER TABLE {table} ADD note text DEFAULT 'none'")
                sql.execute(f"INSERT INTO {table} VALUES (1000)")
        (self._directory / "other-source").unlink()
        for verb, name in {"pause": "paused altered rescanned", "cancel": "gone unreverted"}.items():
            for each in name.split():
                self._older_cdc(verb, each, "--reason", f"{verb} it", *(["--yes"] if verb == "cancel" else []))
        self._older["three"].terminate()
        for name, state in RESTING.items():
            self._older.eventually(f"{name} is {state}", partial(self._finds, _STATE, name, state))
        assert self._older["three"].wait() == 0
        self._older_cdc("alter", "altered", "--add", "public.extra", "--set", "resolved=3s")
        self._older_cdc("rescan", "rescanned", "public.accounts")
        say("every job is where it rests or runs")

    def _replace_nodes(self) -> dict[str, str]:
        """Have nodes of this version take over from the older ones; return what was asked of which job meanwhile."""
        self._older["one"].terminate()
        assert self._older["one"].wait() == 0
        [version] = self._found("SELECT max(version) FROM cdc_store")
        rolling = version == SCHEMA_VERSION
        if rolling:
            self._newer.start("one", locality="region=a")
        for name in RUNNING:
            self._until_moving(name)
        frozen = self._older["two"]
        self._newer.eventually("node two has three jobs", lambda: len(self._jobs_of("two")) >= 3)
        frozen.freeze()
        paused, altered, canceled = self._jobs_of("two")[:3]
        self._older_cdc("pause", paused, "--reason", "lunch")
        self._older_cdc("cancel", canceled, "--yes", "--reason", "over")
        asked = {"paused": paused, "canceled": canceled}
        if version >= _ALTERS_RUNNING:
            self._older_cdc("alter", altered, "--set", "resolved=3s")
            asked["altered"] = altered
        states = {what: self._found(_STATE, name) for what, name in asked.items()}
        assert states == {what: [_REQUESTED[what]] for what in asked}, states
        say(f"node two dies with {', '.join(self._jobs_of('two'))}")
        frozen.kill()
        if not rolling:
            self._newer.start("one", locality="region=a")
        self._newer.start("two", locality="region=a")
        for name in RUNNING:
            if name not in (paused, canceled):
                self._until_moving(name)
        say("nodes of this version deliver")
        return asked

    def _require_as_before(self, before: Mapping[str, Kept], asked: dict[str, str]) -> None:
        self._newer.until(asked["paused"], "paused")
        self._newer.until(asked["canceled"], "canceled")
        if "altered" in asked:
            self._newer.until(asked["altered"], "running")
        after = {name: self._kept(name) for name in before}
        for name in RESTING:
            for table, was in before[name].items():
                found = after[name][table]
                assert _common(found, was) == _common(was, found), f"{table} of {name} was {was}, and is {found}"
        for name in RUNNING:
            for table in ("cdc_job_events", "cdc_events"):
                known = before[name][table]
                found = after[name][table][: len(known)]
                assert _common(found, known) == _common(known, found), f"the history of {name} has changed"
            [old], [new] = before[name]["cdc_changefeeds"], after[name]["cdc_changefeeds"]
            assert (old["feed_id"], old["created_at"]) == (new["feed_id"], new["created_at"])
            was, now = (json.loads(each["definition"])["written"] for each in (old, new))
            assert (was != now) == (name == asked.get("altered")), f"{name} was {was}, and is {now}"
            job = self._newer.job(name)
            assert job.pending is None
            assert (job.state == "running") == (name not in (asked["paused"], asked["canceled"])), str(job)
        assert self._newer.job(asked["paused"]).reason == "lunch"
        [canceled] = after[asked["canceled"]]["cdc_changefeeds"]
        with psycopg.connect(self._source) as sql:
            slots = [slot for (slot,) in sql.execute("SELECT slot_name FROM pg_replication_slots")]
        assert not [slot for slot in slots if canceled["feed_id"] in slot], slots

    def _deliver_all(self, asked: dict[str, str]) -> None:
        """Have all that can go on do so, and see that consumers got everything."""
        self._newer.start("three", locality="region=b")
        changefeeds = Changefeeds(self._newer.store)
        for name in (asked["paused"], "paused", "asleep", "altered", "rescanned"):
            changefeeds.resume(name)
        for name in ("held", "failed"):  # they run again, as no person has paused them
            changefeeds.alter(name, Alteration(set={"schema_change_policy": "backfill"}), by="the test")
        ended = {asked["canceled"], "scan", "gone", "unreverted"}
        now, going = clock(self._source), [name for name in (*RUNNING, *RESTING) if name not in ended]
        with self._cdc_run(None):
            for name in (*going, "run"):
                self._newer.eventually(f"{name} delivers all", partial(self._has_all, name, now))
        for name in going:
            changefeeds.pause(name, "the end")
        for name in going:
            self._newer.until(name, "paused")
        for name in (*going, "run"):
            if name in ("held", "failed", "altered"):
                tables = [table.removeprefix("public.") for table in _TABLES.get(name, [*TABLES, "public.extra"])]
                assert (found := audit(self._out / name, self._source, tables)).passed, str(found)
            else:
                rows = assert_faithful(self._out / name, self._source, once=name != "rescanned")
                say(f"{name}: {rows} rows")

    def _written(self, name: str) -> str:
        secret = self._directory / ("other-source" if name == "unreverted" else "source")
        options = {"min_checkpoint_frequency": '"1s"', **_OPTIONS.get(name, {})}
        if name != "scan":
            options |= {"updated": "true", "resolved": '"1s"'}
        lines = [f"{option} = {value}" for option, value in options.items()]
        return "\n".join(
            [
                f"[changefeed.{name}]",
                f'source = "${{file:{secret}}}"',
                f"tables = {_TABLES.get(name, list(TABLES))!r}",
                f'sink = "file://{self._out / name}"',
                f"[changefeed.{name}.options]",
                *lines,
            ]
        )

    def _older_cdc(self, *arguments: str) -> None:
        say(f"cdc {' '.join(arguments)}")
        environment = {**os.environ, "PYTHONPATH": self._older_path, "CDC_STORE": self._store}
        command = [sys.executable, "-P", "-m", "cdc_core", *arguments]
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr)

    @contextmanager
    def _cdc_run(self, python_path: str | None) -> Iterator[None]:
        """Have `cdc run` deliver during the block; then it is killed."""
        file, log = self._directory / "run.toml", self._directory / "run.log"
        file.write_text(self._written("run"))
        seen = last_resolved(self._out / "run")
        with log.open("ab") as output:
            run = subprocess.Popen(
                [sys.executable, "-P", "-m", "cdc_testing.thread_nodes", "run", str(file), "run"],
                env={**os.environ, "PYTHONPATH": python_path or os.pathsep.join(sys.path)},
                stdout=output,
                stderr=output,
            )
            try:
                self._newer.eventually(
                    "cdc run delivers", lambda: last_resolved(self._out / "run") > seen or run.poll() is not None
                )
                assert run.poll() is None, log.read_text()
                yield
                assert run.poll() is None, log.read_text()
            finally:
                run.kill()
                run.wait()

    def _has_all(self, name: str, now: Timestamp) -> bool:
        return last_resolved(self._out / name) >= now

    def _until_moving(self, name: str) -> None:
        """Return when the job delivers, wherever it runs."""
        mark = last_resolved(self._out / name)
        self._newer.eventually(f"{name} delivers", lambda: last_resolved(self._out / name) > mark, limit_s=_LIMIT_S)

    def _jobs_of(self, node: str) -> list[str]:
        return [str(name) for name in self._found(_JOBS_OF, node)]

    def _finds(self, query: str, name: str, wanted: Any) -> bool:
        return self._found(query, name) == [wanted]

    def _found(self, query: str, *values: str) -> list[Any]:
        """Return what the store has: opened by this version, it would be no store of the older one any more."""
        with suppress(psycopg.errors.UndefinedTable), psycopg.connect(self._store) as sql:
            return [value for (value,) in sql.execute(query.encode(), values)]
        return []

    def _kept(self, name: str) -> Kept:
        """Return all that the store keeps of the changefeed, but how much history the source retains for it now."""
        with psycopg.connect(self._store) as sql:
            found = {}
            for table in _KEPT:
                rows = sql.execute(f"SELECT to_jsonb(t) FROM {table} t WHERE name = %s ORDER BY t", [name])
                found[table] = [row for (row,) in rows]
        for row in found["cdc_changefeeds"]:
            counters = json.loads(row["counters"] or "{}")
            row["counters"] = {name: n for name, n in counters.items() if not name.startswith(("source.", "measur"))}
        return found

    def _schedules(self) -> list[Any]:
        with psycopg.connect(self._store) as sql:
            tables = ("cdc_schedules", "cdc_schedule_runs")
            return [sql.execute(f"SELECT to_jsonb(t) FROM {table} t ORDER BY t").fetchall() for table in tables]


def _common(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *rows* with the columns that *others* have, too."""
    return [{column: row[column] for column in sorted(row.keys() & set().union(*others))} for row in rows]


def say(what: str) -> None:
    print(time.strftime("%H:%M:%S"), what, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Replace nodes of an older version under load.")
    parser.add_argument("checkout", type=Path, help="of the older version")
    parser.add_argument("--directory", type=Path, help="keeps logs and files; default: a temporary one")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = options.directory and options.directory.absolute()
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrade")))
        directory.mkdir(parents=True, exist_ok=True)
        source = stack.enter_context(CopiedPostgres(settings=_SOURCE))
        store = stack.enter_context(EmbeddedPostgres(settings={"max_connections": "400"}))
        Upgrade(options.checkout.absolute(), directory, source.uri(), store.uri()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
