"""docs/preview.md shows what the commands print, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.pages import Page

from cdc_core.cli.main import cdc, main

PAGE = Page("preview.md")


def example(command: str) -> tuple[list[str], list[str]]:
    """Return the arguments of the command that the page shows, and what it prints there."""
    (block,) = (block for block in PAGE.blocks("console") if block.startswith(f"$ cdc {command} "))
    first, *lines = block.splitlines()
    return first.removeprefix("$ cdc ").split(), lines


def timeless(text: str) -> str:
    return re.sub(r"\d{19}\.\d{10}", "TIME", text)


def test_the_examples_are_real(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE TABLE office_dogs (id int PRIMARY KEY, name text)")
        sql.execute("INSERT INTO office_dogs VALUES (1, 'Petee')")
        sql.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2))")
        sql.execute("INSERT INTO orders VALUES (1, 9.9), (2, 1), (3, 5)")
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(
        f'[changefeed.orders]\nsource = "{documented(database)}"\ntables = ["orders"]\nsink = "kafka://127.0.0.1:1"\n'
        '[changefeed.orders.options]\ntopic_prefix = "shop_"\nextra_headers = { team = "billing" }\nupdated = true\n'
    )
    arguments, expected = example("preview")
    assert main(arguments) == 0
    assert timeless(capsys.readouterr().out).splitlines() == [timeless(line) for line in expected]

    _, expected = example("watch")
    assert (
        main(["watch", "--source", documented(database), "--table", "office_dogs", "--set", "initial_scan=only"]) == 0
    )
    assert capsys.readouterr().out.splitlines() == expected[:2]

    (code,) = PAGE.blocks("python")
    exec(code.replace("postgresql://user@host:5432/shop", documented(database)), {})
    assert capsys.readouterr().out.splitlines()[0].startswith("orders b'[1]' b'")


def test_every_option_of_both_commands_is_on_the_page() -> None:
    for name in ("watch", "preview"):
        for parameter in cdc.commands[name].params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert not option.startswith("--") or option == "--debug" or f"`{option}" in PAGE.text, (name, option)
