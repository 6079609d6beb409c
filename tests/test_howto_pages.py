"""The commands of the how-to pages do what the pages say, in this order, on a changefeed that really runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.cookbook import PAGES, page_of
from cdc_testing.documented_role import documented
from cdc_testing.files import delivered
from cdc_testing.imports import ROOT
from cdc_testing.pages import Page
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually
from cdc_testing.thread_host import KeptThreads
from sqlalchemy import make_url

from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url

TABLES = "orders", "visits", "carts", "parcels", "tmp_x"
FEED = """
[changefeed.orders]
source = "{source}"
tables = ["public.orders", "public.visits"]
sink = "file://{directory}/out"
[changefeed.orders.options]
updated = true
resolved = "0s"
"""
Command = Callable[[str], str]


@pytest.fixture
def shop(database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with `shop.toml`, whose tables have a row each."""
    for table in TABLES:
        sql.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, region text); INSERT INTO {table} VALUES (1, 'eu')".encode()
        )
    source = make_url(documented(database))
    monkeypatch.setenv("PASSWORD", str(source.password))
    monkeypatch.chdir(tmp_path)
    shown = source.set(password="PASSWORD").render_as_string(hide_password=False)
    text = FEED.format(source=shown.replace(":PASSWORD@", ":${PASSWORD}@"), directory=tmp_path)
    (tmp_path / "shop.toml").write_text(text)
    return tmp_path


@pytest.fixture
def cdc(database: str, tmp_path: Path, kept_threads: KeptThreads, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a line of a page, and returns what it prints. A run ends when everything is delivered; nothing asks."""
    places = {
        "postgresql://cdc@db:5432/cdc": f"sqlite:///{tmp_path}/store.sqlite",
        "postgresql://cdc@db:5432/shop": documented(database),
        "/srv/other/.cdc": str(tmp_path / "other"),
    }

    def run(line: str) -> str:
        words = [places.get(word, word) for word in shlex.split(line.removeprefix("cdc "))]
        words += {"run": ["--once"], "drop": ["--yes"], "move": ["--yes"]}.get(words[0], [])
        with kept_threads.lent():
            status = main(words)
        printed = capsys.readouterr()
        assert status == 0, (line, printed)
        return printed.out

    return run


TASKS = "Pause on error", "Mask a column", "Add a table", "Move to another host", "Read exactly once"


@pytest.mark.parametrize("task", TASKS)
def test_a_search_finds_the_task_as_a_heading(task: str) -> None:
    text = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert re.search(rf"^#+ {task}", text, re.MULTILINE)


def test_the_index_of_the_cookbook_lists_every_recipe() -> None:
    listed = re.findall(r"\]\(([a-z-]+)\.md#([a-z-]+)\)", page_of("index").text.partition("\n## ")[0])
    headings = [
        (name, heading) for name in PAGES for heading in re.findall("^## (.*)$", page_of(name).text, re.MULTILINE)
    ]
    assert listed == [(name, heading.lower().replace(" ", "-")) for name, heading in headings]


def commands(page: str) -> list[str]:
    """Return the commands of a page."""
    found = [line.strip() for block in Page(page).blocks("console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in found if line.startswith("$ cdc ")]


def rows(directory: Path, table: str) -> list[int]:
    return [row["key"][0] for row in delivered(directory / "out", table)]


def test_a_paused_changefeed_delivers_what_came_meanwhile(shop: Path, sql: Sql, cdc: Command) -> None:
    resume, pause = commands("pause-and-resume.md")
    cdc("run shop.toml")
    cdc(pause)
    sql.execute("INSERT INTO orders VALUES (2, 'eu')")
    assert main(["run", "shop.toml", "--once"]) == 1
    assert rows(shop, "orders") == [1]
    cdc(resume)
    cdc("run shop.toml")
    assert rows(shop, "orders") == [1, 2]


def test_tables_are_added_and_removed(shop: Path, sql: Sql, cdc: Command) -> None:
    one, without_scan, patterns = commands("add-a-table.md")
    cdc("run shop.toml")
    cdc(one)
    cdc(without_scan)
    cdc("run --store .cdc orders")
    sql.execute("INSERT INTO visits VALUES (2, 'eu'); INSERT INTO parcels VALUES (2, 'eu')")
    cdc("run --store .cdc orders")
    assert [rows(shop, table) for table in ("visits", "carts", "parcels")] == [[1], [1], [2]]
    cdc(patterns)
    sql.execute("INSERT INTO tmp_x VALUES (2, 'eu')")
    cdc("run --store .cdc orders")
    assert rows(shop, "tmp_x") == []
    assert rows(shop, "orders") == [1]
    assert sorted(rows(shop, "visits")) == [1, 1, 2]


def test_a_table_is_emitted_again(shop: Path, sql: Sql, cdc: Command) -> None:
    part, show, *others = commands("emit-again.md")
    sql.execute("INSERT INTO orders VALUES (2, 'us')")
    cdc("run shop.toml")
    cdc(part)
    assert "not started" in cdc(show)
    cdc("run shop.toml")
    assert sorted(rows(shop, "orders")) == [1, 1, 2]
    for line in others:
        cdc(line)
    cdc("run shop.toml")
    assert rows(shop, "orders").count(2) >= 2


def test_changes_are_skipped(shop: Path, sql: Sql, cdc: Command) -> None:
    pause, move, resume = commands("skip-or-repeat.md")
    cdc("run shop.toml")
    cdc(pause)
    sql.execute("INSERT INTO orders VALUES (2, 'eu')")
    cdc(move)
    sql.execute("INSERT INTO orders VALUES (3, 'eu')")
    cdc(resume)
    cdc("run shop.toml")
    assert rows(shop, "orders") == [1, 3]


def test_a_changefeed_moves_to_another_host(
    shop: Path, sql: Sql, cdc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, run, with_store, by_name, create = commands("move-to-another-host.md")
    cdc("run shop.toml")
    other = shop / "other"
    other.mkdir()
    for name in ("shop.toml", ".cdc"):
        (shop / name).rename(other / name)
    monkeypatch.chdir(other)
    sql.execute("INSERT INTO orders VALUES (2, 'eu')")
    cdc(check)
    cdc(run)
    assert rows(shop, "orders") == [1, 2]
    cdc("drop shop.toml")
    sql.execute("TRUNCATE orders; INSERT INTO orders VALUES (3, 'eu')")
    cdc(with_store)
    sql.execute("INSERT INTO orders VALUES (4, 'eu')")
    (other / "shop.toml").rename(other / "elsewhere.toml")
    cdc(by_name)
    assert rows(shop, "orders") == [1, 2, 3, 4]
    (other / "elsewhere.toml").rename(other / "shop.toml")
    cdc(f"drop {with_store.removeprefix('cdc run ')}")
    cdc(run)
    assert "job 'orders' is created" in cdc(create)


def test_a_job_is_created_in_a_pod(shop: Path) -> None:
    page = Page("kubernetes.md")
    [line] = re.findall(r"^\$ kubectl .* exec -i deployment/cdc-node -- (.*)$", page.text, re.MULTILINE)
    done = page.shell(shop, line.replace("/tmp/", f"{shop}/pod-"), CDC_STORE=f"sqlite:///{shop}/store.sqlite")
    assert "job 'orders' is created" in done.stdout, done.stderr


def test_a_removed_changefeed_leaves_nothing_at_the_source(shop: Path, sql: Sql, cdc: Command) -> None:
    drop, orphans = commands("remove-a-changefeed.md")
    slots = b"SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    cdc("run shop.toml")
    cdc(drop)
    assert sql.execute(slots).fetchall() == []
    cdc("run shop.toml")
    (shop / ".cdc").rename(shop / "lost")
    with closing(ProgressStore(store_url(shop / "other"))) as other:
        other.open()
    ours = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    sql.execute(f"SELECT pg_terminate_backend(pid) {ours}".encode())  # the end of the run's process
    eventually("its end", lambda: sql.execute(f"SELECT pid {ours}".encode()).fetchall() == [])
    cdc(orphans)
    assert sql.execute(slots).fetchall() == []


def test_what_fills_the_disk_is_found(shop: Path, sql: Sql, cdc: Command) -> None:
    [show] = commands("full-disk.md")
    cdc("run shop.toml")
    assert "retained" in cdc(show)
    [query] = Page("full-disk.md").blocks("sql")
    assert sql.execute(query.encode()).fetchall()
