"""Every command of every how-to page runs: here, in a shell, page by page; or in the test that is named below.

Runs are on threads in the place of Spark (`cdc_testing.thread_nodes`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.documented_role import documented
from cdc_testing.fixtures import TESTS, fresh_database
from cdc_testing.imports import ROOT
from cdc_testing.otlp_receiver import Receiver
from cdc_testing.pages import Command, Page

TESTED = {
    ".ci/check_outside.py": ("write-a-rangefeed.md", "write-a-sink.md#1. Create a repository", "write-an-encoder.md"),
    ".ci/check_outside_cluster.py": ("clusters.md#The installation",),
    "plugins/postgres/tests/test_provider_pages.py": ("postgres.md", "postgres-failover.md", "providers/"),
    "tests/auditing/test_audit_command.py": ("audit.md",),
    "tests/clusters/test_pages.py": (
        "clusters.md#Two workers on one machine",
        "localities.md#A standalone cluster",
        "node-cluster.md#On one machine",
    ),
    "tests/end_to_end/test_cookbook.py": ("cookbook/",),
    "tests/spark/test_python_functions.py": ("write-a-function.md",),
    "tests/spark/test_queries_page.py": ("queries.md",),
    "tests/spark/test_reading_page.py": ("reading-files.md",),
    "tests/test_deploy.py": ("store.md#A store in PostgreSQL",),
    "tests/test_howto_pages.py": (
        "add-a-table.md",
        "emit-again.md",
        "full-disk.md",
        "move-to-another-host.md",
        "pause-and-resume.md",
        "remove-a-changefeed.md",
        "skip-or-repeat.md",
    ),
    "tests/test_jobs_page.py": ("jobs.md", "nodes.md#List the nodes", "nodes.md#Draining"),
    "tests/test_migration_pages.py": ("migrating-from-cockroachdb.md", "migrating-from-debezium.md"),
    "tests/test_outbox_page.py": ("outbox.md",),
    "tests/test_regional_page.py": ("regional-by-row.md",),
    "tests/test_schedules_page.py": ("schedules.md",),
    "tests/test_security_page.py": ("security.md#Tokens", "security.md#TLS", "security.md#A reverse proxy"),
    "tests/test_write_a_sink.py": ("write-a-sink.md#4. Run a changefeed",),
    "tests/watching/test_preview.py": ("preview.md",),
}
"""By test, or step of CI, the commands that it runs: those of a page, below a heading of it, or of a directory."""

CANNOT = {
    "docker": "there is no daemon of containers; tests/test_deploy.py checks the image's file and the Compose file",
    "kubectl": "there is no Kubernetes; tests/test_helm_chart.py validates what is applied",
    "helm": "there is no Kubernetes; tests/test_helm_chart.py renders what each of these installs",
    "systemctl": "systemd is not process 1; tests/test_deploy.py has it verify the unit",
    "journalctl": "systemd is not process 1; tests/test_deploy.py has it verify the unit",
    "useradd": "it would change the machine",
    "gcloud": "it needs an account",
    "python3 -m venv": ".ci/check_outside.py installs the wheels into a new environment",
    "pip install": ".ci/check_outside.py installs the wheels into a new environment",
    "/opt/cdc/bin/pip install": ".ci/check_outside.py installs the wheels into a new environment",
    "python -m cdc_conformance.sabotage": "it takes minutes; .ci/run has it beside the tests",
    "make nemesis": "it takes minutes; tests/nemesis runs shorter histories",
    "CDC_LOCALITY=": "it is the beginning of a command; cdc_testing.spark_cluster starts workers with this variable",
}
"""By the beginning of a command, why no test runs it as it is."""

SHOP = """
[changefeed.orders]
source = "${SOURCE}"
tables = ["public.orders"]
sink = "file://${HERE}/out"
[changefeed.orders.options]
updated = true
resolved = "0s"
min_checkpoint_frequency = "0s"
"""
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text);
INSERT INTO orders VALUES (1, NULL), (42, '');
CREATE TABLE customers (id int PRIMARY KEY);
CREATE TABLE vehicles (id int PRIMARY KEY);
"""
SHELL = r"""
set -emx
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT
VARIABLES=()
sql() { psql -qXAt -v ON_ERROR_STOP=1 "${VARIABLES[@]}" "$OWNER"; }
until_it() { for _ in $(seq 300); do "$@" && return; sleep 0.2; done; false; }
"""
PROGRAM = """#!/bin/sh
case $1 in
    run | node) exec {python} -m cdc_testing.thread_nodes "$@" ;;
    *) exec {python} -m cdc_core "$@" ;;
esac
"""
PLACES = {
    "postgresql://cdc@db:5432/cdc": "$STORE",
    "postgresql://cdc@db.example:5432/cdc": "$STORE",
    "postgresql://cdc@store:5432/cdc": "$STORE",
    "postgresql://user@host:5432/scratch": "$SOURCE",
    "file:///data/": "file://${HERE}/data/",
    "file:///tmp/": "file://${HERE}/",
}
"""Texts of all pages, and what they are here."""
RUN = "cdc run shop.toml --once"


@dataclass(frozen=True, kw_only=True)
class Session:
    """How a page is followed.

    *replaced* are texts of it that stand for others here. *first* is typed before the command that begins with the
    key, and *last* at the end. The first changefeed of the page is in the file *toml*.
    """

    replaced: Mapping[str, str] = field(default_factory=dict)
    first: Mapping[str, str] = field(default_factory=dict)
    last: str = ""
    toml: str = ""


SESSIONS = {
    "conformance.md": Session(
        replaced={
            "sink shelf --uri 'shelf:///tmp/shelf/{unique}'": "sink cloudstorage --uri file://$HERE/{unique} -k empty",
            "--cdc-sink shelf --cdc-uri 'shelf:///tmp/shelf/{unique}'": "--cdc-sink cloudstorage -k empty"
            " --cdc-uri file://$HERE/{unique}",
            "encoder form": "encoder json -k nulls",
            "{unique}.' --format avro": "{unique}.' -k empty --format avro",
            "kafka://broker:9092": "kafka://$KAFKA",
            "http://registry:8081": "$REGISTRY",
            "scratch": "scratch -k keeps_resolving",
        },
        first={"": "sql <<< 'GRANT CREATE ON SCHEMA public TO cdc'"},
    ),
    "csv.md": Session(
        toml="dump.toml",
        replaced={"COPY orders FROM '/data/dump/orders.csv'": r"\copy copied FROM 'orders.csv'"},
        first={
            "COPY": "cdc run dump.toml --once; gunzip -c $(find data -name '*.csv.gz') > orders.csv\n"
            "sql <<< 'CREATE TABLE copied (LIKE orders)'"
        },
        last="test $(sql <<< 'SELECT count(*) FROM (TABLE orders INTERSECT TABLE copied)') = 2",
    ),
    "dead-letters.md": Session(
        toml="shop.toml",
        replaced={"FILE [NAME]": "shop.toml orders", "--give-up 17 --give-up 23": "--give-up 2 --give-up 3"},
        first={
            "cdc replay-dead-letters FILE [NAME] --list": ""
            "sql <<< \"ALTER TABLE orders ADD due date DEFAULT 'infinity'\"\n"
            "sql <<< \"UPDATE orders SET due = '2026-01-01' WHERE id = 1\"\n" + RUN,
            "cdc replay-dead-letters FILE [NAME]": "cp shop.toml strict.toml\n"
            "echo 'parquet_special_values = \"string\"' >> shop.toml",
            "cdc replay-dead-letters FILE [NAME] --give-up": "mv strict.toml shop.toml\n"
            f"sql <<< 'INSERT INTO orders VALUES (43), (44)'; {RUN}",
        },
        last='test -z "$(cdc replay-dead-letters shop.toml --list | grep infinity)"',
    ),
    "debugging.md": Session(
        replaced={
            "[FILE [NAME]] [--state DIR|URL] [--since TIME] [--kind KIND]… [--limit N] [--follow] [--json]": "shop.toml"
            " orders --state .cdc --since 1h --kind changefeed_started --limit 5 --json",
            "events [NAME] --store DIR|URL …": "events orders --store .cdc",
            "FILE [NAME] [--state DIR|URL] [-o ARCHIVE] [--log PATH]… [--no-connect]": "shop.toml orders --state .cdc"
            " -o archive --log run.log --no-connect",
            "debug NAME --store DIR|URL …": "debug orders --store .cdc",
        },
        first={"cdc events [FILE": f"{RUN} 2> run.log"},
        last="test -s archive",
    ),
    "deploy.md": Session(
        replaced={
            "/opt/cdc/bin/cdc": "cdc",
            "/etc/": "$HERE/etc/",
            "-g cdc ": "",
            "chgrp cdc": "chgrp $(id -g)",
            "deploy/systemd": f"{ROOT}/deploy/systemd",
        },
        first={"install -m 644": "mkdir -p etc/systemd/system"},
        last='test "$(stat -c %a etc/cdc/*)" = "$(printf "600\\n640\\n640")"; test ${#CDC_CLUSTER_SECRET} = 64',
    ),
    "kubernetes.md": Session(last="test $(stat -c %a cluster-secret) = 600; grep -q '^admin admin sha256:' tokens"),
    "localities.md": Session(toml="feeds.toml", replaced={"zone=a,cloud=aws": "zone=a,cloud=aws --once"}),
    "mcp.md": Session(
        replaced={"[FILE] [--store DIR|URL] [--allow-changes]": "shop.toml --store .cdc --allow-changes"}
    ),
    "monitoring.md": Session(
        replaced={
            "--metrics": "--metrics 127.0.0.1:$PORT &",
            "curl http://127.0.0.1:9464": "curl --retry 99 --retry-connrefused http://127.0.0.1:$PORT",
            "http://collector:4318": "$OTLP",
            "--otlp": "--otlp --once",
        },
        first={"export OTEL": "kill %1; wait"},
    ),
    "nodes.md": Session(replaced={"eu-west-1": "eu-west-1 2> node.log &"}, last="until_it grep -q joined node.log"),
    "node-cluster.md": Session(first={"": "STORE=$OWNER; cdc create shop.toml --store $STORE"}),
    "operations.md": Session(
        replaced={
            "FILE [NAME] [--once] [--state DIR|URL] [--locality TIERS] [--metrics [HOST:PORT]] [--otlp]": "shop.toml"
            " orders --once --state .cdc --locality region=eu --metrics 127.0.0.1:$PORT --otlp --log-format json",
            "--store DIR|URL NAME [--once]": "--store .cdc orders --once",
        }
    ),
    "postgres-slots.md": Session(
        replaced={
            "CREATE ROLE cdc": "CREATE ROLE slot_reader",
            "TO cdc": "TO slot_reader",
            "rescan FILE NAME": "rescan shop.toml orders",
            "run FILE NAME": RUN.removeprefix("cdc "),
        },
        first={
            "cdc rescan": f"{RUN}; sql <<< 'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()'",
            "DELETE": "sql <<< \"ALTER TABLE orders ADD updated text DEFAULT '2'\"\nVARIABLES=(-v \"began='2'\")",
        },
        last="cdc show shop.toml | grep 'with a new slot: complete'; test $(sql <<< 'SELECT count(*) FROM orders') = 0",
    ),
    "protobuf.md": Session(last="python -c 'import changefeed_pb2'"),
    "read-exactly-once.md": Session(
        first={
            "INSERT": "sql <<< 'CREATE TABLE orders_copy (id int PRIMARY KEY, doc jsonb, updated text)'\n"
            "VARIABLES=(-v id=1 -v \"doc='{}'\" -v \"updated='2'\")"
        },
        last="test $(sql <<< 'SELECT updated FROM orders_copy') = 2",
    ),
    "security.md": Session(
        replaced={"5432/cdc": "5432/cdc --listen 127.0.0.1:$PORT &"},
        first={"": "STORE=$OWNER"},
        last="curl --fail --retry 99 --retry-connrefused http://127.0.0.1:$PORT/ready",
    ),
    "status.md": Session(
        replaced={
            "[FILE [NAME]] [--state DIR|URL] [--json]": "shop.toml orders --state .cdc --json",
            "[NAME] --store DIR|URL [--json]": "orders --store .cdc --json",
        },
        first={"": RUN},
    ),
    "store.md": Session(
        replaced={"5432/cdc orders": "5432/cdc orders --once"}, first={"": f"STORE=$OWNER; {RUN} --store $STORE"}
    ),
    "trace.md": Session(
        replaced={
            "FILE [NAME] [--table TABLE [--key JSON]] [--rows N] [--timeout DURATION] [--json] [--state DIR|URL]": ""
            "shop.toml orders --table public.orders --key '[42]' --rows 1 --timeout 1m --json --state .cdc",
            "NAME --store DIR|URL …": "orders --store .cdc --rows 1",
            "curl -s": "curl -s --fail",
            "localhost:8083": "127.0.0.1:$PORT",
            "traces/7": "traces/4",
        },
        first={
            "": "export CDC_STORE=.cdc; cdc create shop.toml; cdc node --listen 127.0.0.1:$PORT 2> node.log &\n"
            "(while sleep 0.5; do sql <<< 'UPDATE orders SET note = note || 1 WHERE id = 42'; done) 2> /dev/null &\n"
            "until_it bash -c 'find out -name \"*RESOLVED*\" | grep -q .'"
        },
    ),
    "upgrade.md": Session(
        first={
            "": "export CDC_STORE=$OWNER STORE=$OWNER; cdc node --name NODE 2> node.log &\n"
            "until_it grep -q joined node.log"
        },
        last="wait; test -s cdc.dump",
    ),
}


def howto_pages() -> list[Page]:
    """Return the pages that the index lists as how-to guides, and those of the cookbook and of each provider."""
    index = Page("index.md").text.partition("\n## How-to guides\n")[2].partition("\n## Reference\n")[0]
    found = set(re.findall(r"\]\(([\w-]+\.md)", index))
    for directory in ("cookbook", "providers"):
        found |= {f"{directory}/{path.name}" for path in (ROOT / "docs" / directory).glob("*.md")}
    return [Page(name) for name in sorted(found)]


def places(page: Page, command: Command) -> set[str]:
    """Return by which names `TESTED` may list a command."""
    return {page.name, f"{page.name}#{command.heading}", f"{Path(page.name).parent}/"}


def cannot(command: Command) -> set[str]:
    return {beginning for beginning in CANNOT if command.text.startswith(beginning)}


def left(page: Page) -> list[Command]:
    """Return the commands of *page* that run here."""
    elsewhere = {place for listed in TESTED.values() for place in listed}
    return [each for each in page.commands() if not places(page, each) & elsewhere and not cannot(each)]


def test_every_command_of_the_how_to_pages_runs_in_a_test() -> None:
    assert {page.name for page in howto_pages() if left(page)} == set(SESSIONS)


def test_no_command_is_in_a_block_of_another_language() -> None:
    fenced = r"(?m)^ *```(\w*)\n((?s:.*?))^ *```$"
    others = [
        text for page in howto_pages() for language, text in re.findall(fenced, page.text) if language != "console"
    ]
    assert [
        text for text in others if re.search(r"(?m)^ *(?:\$|curl|docker|helm|kubectl|psql|cdc \w+ [-\w]) ", text)
    ] == []


def test_nothing_is_listed_that_is_gone() -> None:
    commands = [(page, command) for page in howto_pages() for command in page.commands()]
    assert {beginning for _, command in commands for beginning in cannot(command)} == set(CANNOT)
    for test, listed in TESTED.items():
        text = (ROOT / test).read_text()
        for place in listed:
            found = [command.text.split()[:2][-1] for page, command in commands if place in places(page, command)]
            assert found, place
            name = place.rstrip("/").partition(".md")[0]
            assert any(re.search(rf"\b{re.escape(word)}\b", text) for word in (name, *found)), (test, place)


def script(page: Page, session: Session) -> str:
    """Return the commands of *page* that run here, as a script of bash."""
    typed = dict(session.first)
    lines = [SHELL, typed.pop("", "")]
    for command in left(page):
        before = max((each for each in typed if command.text.startswith(each)), key=len, default=None)
        if before is not None:
            lines.append(typed.pop(before))
        text = command.text
        for old, new in {**session.replaced, **PLACES}.items():
            text = text.replace(old, new)
        lines.append(f"sql <<'END'\n{text}\nEND" if command.language == "sql" else text)
    whole = "\n".join(command.text for command in left(page))
    assert [*typed, *(old for old in session.replaced if old not in whole)] == [], f"{page.name} has changed"
    return "\n".join([*lines, session.last])


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_the_commands_of_the_page_run(
    name: str, postgres_server: EmbeddedPostgres, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page, session = Page(name), SESSIONS[name]
    typed, servers = script(page, session), {}
    if "$KAFKA" in typed:
        servers["KAFKA"] = request.getfixturevalue("kafka_broker").bootstrap_servers
        servers["REGISTRY"] = request.getfixturevalue("schema_registry").url
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "cdc").write_text(PROGRAM.format(python=sys.executable))
    (programs / "cdc").chmod(0o755)
    (tmp_path / "shop.toml").write_text(SHOP)
    if session.toml:
        text = re.sub(r"(?m)^source = .*$", 'source = "${SOURCE}"', page.blocks("toml")[0])
        for old, new in PLACES.items():
            text = text.replace(old, new)
        (tmp_path / session.toml).write_text(text)
    with fresh_database(postgres_server) as database, Receiver.listening() as receiver:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(TABLES)
        done = page.shell(
            tmp_path,
            typed,
            **servers,
            PATH=f"{programs}:{Path(sys.executable).parent}:{postgres_server.binaries}:{os.environ['PATH']}",
            PYTHONPATH=f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
            SOURCE=documented(database),
            OWNER=database,
            STORE=f"sqlite:///{tmp_path}/store.sqlite",
            HERE=str(tmp_path),
            PORT=str(free_port()),
            OTLP=receiver.url,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert receiver.got.empty() == ("--otlp" not in typed)
