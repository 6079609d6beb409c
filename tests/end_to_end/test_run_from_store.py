"""A changefeed that was run from its file goes on, elsewhere, by its definition in the store alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import ROLE
from cdc_testing.files import last_resolved
from cdc_testing.fixtures import fresh_database

PASSWORD = "p4ss/w:rd with+signs"

TOML = """
[changefeed.items]
source = "postgresql://keeper:${{ITEMS_PASSWORD}}@{server}"
tables = ["items"]
sink = "file://{files}"
[changefeed.items.options]
updated = true
resolved = true
min_checkpoint_frequency = "0s"
"""


def cdc(directory: Path, *arguments: str) -> None:
    """Run the command with --once in *directory*, and see that it succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "cdc_testing.thread_nodes", "run", "--once", *arguments],
        cwd=directory,
        env={**os.environ, "ITEMS_PASSWORD": quote(PASSWORD, safe="")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert PASSWORD not in done.stderr


def delivered(files: Path) -> list[tuple[int, str | None]]:
    """Return key and value of every row that was delivered, in the order of the files."""
    lines = [json.loads(line) for path in sorted(files.rglob("*.ndjson")) for line in path.read_text().splitlines()]
    return [(line["key"][0], None if line["after"] is None else line["after"]["note"]) for line in lines]


@pytest.mark.slow
@pytest.mark.usefixtures("workers_find_the_tests")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_run_elsewhere_goes_on_by_the_store_alone(
    database: str, postgres_server: EmbeddedPostgres, tmp_path: Path, kind: str
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(database)
    server = f"{parts['host']}:{parts['port']}/{parts['dbname']}"
    here, there, files = (tmp_path / name for name in ("here", "there", "files"))
    here.mkdir()
    there.mkdir()
    (here / "items.toml").write_text(TOML.format(server=server, files=files))
    with fresh_database(postgres_server) as kept, psycopg.connect(database, autocommit=True) as connection:
        store = kept if kind == "postgresql" else f"sqlite:///{tmp_path}/kept/store.sqlite"
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO items SELECT n, 'first' FROM generate_series(1, 100) n")
        connection.execute("DROP ROLE IF EXISTS keeper")
        connection.execute(f"CREATE ROLE keeper REPLICATION LOGIN PASSWORD '{PASSWORD}' IN ROLE {ROLE}")
        cdc(here, "items.toml", "--state", store)
        assert sorted(delivered(files)) == [(n, "first") for n in range(1, 101)]
        before = last_resolved(files)
        shutil.rmtree(here)

        connection.execute("UPDATE items SET note = 'second' WHERE id <= 10")
        connection.execute("DELETE FROM items WHERE id = 100")
        cdc(there, "items", "--store", store)
        assert sorted(delivered(files)[100:], key=str) == sorted(
            [(n, "second") for n in range(1, 11)] + [(100, None)], key=str
        )
        assert last_resolved(files) > before
        assert (there / ".cdc").is_dir()
