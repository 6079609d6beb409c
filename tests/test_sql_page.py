"""The statements of docs/sql.md run."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.imports import ROOT
from sqlalchemy import make_url

from cdc_core.cli.main import main
from cdc_core.errors import OptionError
from cdc_core.statements.parsing import parse
from cdc_core.store.progress import ProgressStore, store_url

PAGE = (ROOT / "docs" / "sql.md").read_text()
TABLES = """
    CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(10, 2));
    CREATE TABLE customers (id int PRIMARY KEY, name text);
    CREATE TABLE returns (id int PRIMARY KEY, reason text);
"""


@pytest.fixture
def source(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of the database, with a reference in place of its password."""
    password = str(make_url(database).password)
    monkeypatch.setenv("PASSWORD", password)
    return documented(database).replace(password, "${PASSWORD}")


def test_the_statements_of_the_page_run(
    database: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CDC_STORE", str(tmp_path / "store"))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES)
    create, query, alter, control, show, schedule = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    for number, text in enumerate([create, query, show, alter, schedule, control]):
        script = tmp_path / f"{number}.sql"
        script.write_text(text.replace("/data", str(tmp_path)))
        assert main(["sql", "--source", source, "-f", str(script)]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "job_id\n----------------\norders_customers\n(1 row)" in printed
    assert "CREATE CHANGEFEED INTO 'file://" in printed
    assert "CREATE CHANGEFEED FOR TABLE orders, returns INTO 'file://" in printed
    assert "nightly | nightly | ACTIVE" in " ".join(printed.split())
    store = ProgressStore(store_url(tmp_path / "store"))
    assert {job.name: job.state for job in store.jobs.all()} == {
        "orders_customers": "cancel-requested",
        "totals": "cancel-requested",
    }
    store.close()


@pytest.mark.parametrize("create", ["CREATE", "EXPERIMENTAL"])
def test_without_a_sink_the_messages_are_printed_as_the_page_shows(
    database: str, source: str, create: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CDC_STORE", raising=False)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE office_dogs (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO office_dogs VALUES (1, 'Petee'), (2, 'Carl')")
    [shown] = re.findall(r"```console\n(.*office_dogs.*?)```", PAGE, re.DOTALL)
    shown = shown.rpartition("$ cdc ")[2]
    [statement] = re.findall(r'"CREATE (.*?)"', shown)
    assert main(["sql", "--source", source, f"{create} {statement};"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == shown.partition("\n")[2]
    assert main(["sql", "--source", source, "--format", "json", f"{create} {statement};"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        '{"table": "office_dogs", "key": [1], "value": {"after": {"id": 1, "name": "Petee"}}}'
    )


def test_the_mistake_on_the_page_is_shown_as_the_page_says() -> None:
    [shown] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    statement = shown.splitlines()[1].strip().replace("*****", "/data")
    with pytest.raises(OptionError) as raised:
        parse(statement)
    assert str(raised.value) == shown.rstrip("\n")
