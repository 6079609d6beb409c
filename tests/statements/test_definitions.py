"""A statement and a file give the same changefeed, and a changefeed gives its statement again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve, resolve_without_sink
from cdc_core.config.toml_file import read_changefeed
from cdc_core.errors import ConfigError, OptionError
from cdc_core.plugins.host import PluginHost
from cdc_core.statements.definitions import changefeed_of_statement, derived_name, statement_text
from cdc_core.statements.parsing import parse
from cdc_core.statements.values import CreateChangefeed

SOURCE = "postgresql://cdc:${PASSWORD}@host:5432/shop"
ENVIRON = {"PASSWORD": "hunter2", "BROKER": "broker:9092"}

PAIRS = {
    "tables": (
        "CREATE CHANGEFEED FOR TABLE public.orders, \"Users\" INTO 'kafka://${BROKER}?topic_prefix=a' WITH updated,"
        " resolved = '10s', initial_scan = 'no', kafka_sink_config = '{\"RequiredAcks\": \"ALL\"}', spark.x = '1'",
        """
        tables = ["public.orders", '"Users"']
        sink = "kafka://${BROKER}?topic_prefix=a"
        options = {updated = true, resolved = "10s", initial_scan = "no", kafka_sink_config = {RequiredAcks = "ALL"}}
        spark = {"spark.x" = "1"}
        """,
    ),
    "query": (
        "CREATE CHANGEFEED INTO 'file:///data/out' WITH format = 'json', compression = gzip"
        " AS SELECT id, amount FROM public.orders WHERE amount > 10",
        """
        query = "SELECT id, amount FROM public.orders WHERE amount > 10"
        sink = "file:///data/out"
        format = "json"
        options = {compression = "gzip"}
        """,
    ),
    "pattern": (
        "CREATE CHANGEFEED FOR public.* INTO 'file:///data/out' WITH csv_header, format=csv, initial_scan_only",
        """
        tables = ["public.*"]
        sink = "file:///data/out"
        format = "csv"
        options = {initial_scan = "only", csv_header = true}
        """,
    ),
}


def made(text: str, directory: Path = Path("/here"), *, source: str = SOURCE) -> Changefeed:
    [parsed] = parse(text)
    assert isinstance(parsed.statement, CreateChangefeed)
    return changefeed_of_statement(parsed.statement, "orders", sources=[source], directory=directory, environ=ENVIRON)


def stored(changefeed: Changefeed) -> dict[str, Any]:
    return resolve(changefeed, PluginHost.load()).definition()


@pytest.mark.parametrize(("statement", "toml"), PAIRS.values(), ids=PAIRS)
def test_a_statement_gives_the_changefeed_that_a_file_gives(statement: str, toml: str, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(f"[changefeed.orders]\nsource = '{SOURCE}'\n{toml}")
    by_file = read_changefeed(tmp_path / "shop.toml", environ=ENVIRON)
    by_statement = made(statement)
    host = PluginHost.load()
    first, second = resolve(by_file, host), resolve(by_statement, host)
    assert first.options == second.options
    for part in ("rangefeed", "encoder", "sink"):
        assert getattr(first, part).parsed() == getattr(second, part).parsed()
    assert (first.tables, first.sources, first.destination, first.query, first.spark, first.encoder.name) == (
        second.tables,
        second.sources,
        second.destination,
        second.query,
        second.spark,
        second.encoder.name,
    )
    assert by_file.written is not None
    assert by_statement.written is not None
    assert by_file.written.keys() == by_statement.written.keys()
    assert "hunter2" not in str(stored(by_statement))


@pytest.mark.parametrize(("statement", "_toml"), PAIRS.values(), ids=PAIRS)
def test_the_statement_of_a_stored_definition_gives_the_definition_again(statement: str, _toml: str) -> None:
    definition = stored(made(statement))
    text = statement_text(definition)
    assert "hunter2" not in text
    again = stored(made(text))
    assert again == definition
    assert statement_text(again) == text


def test_a_statement_says_what_it_leaves_out() -> None:
    written = {"sink": "file:///o", "table": {"t": {"columns": ["id"]}}}
    text = statement_text({"written": written, "tables": ["t"]})
    assert text == "CREATE CHANGEFEED FOR TABLE t INTO 'file:///o' /* with sections of tables: see cdc show */"
    written = {"sink": "file:///o", "query": "SELECT f(v) FROM t -- f", "functions": {"f": "SELECT 1"}}
    text = statement_text({"written": written, "tables": ["t"]})
    assert text.endswith(" AS SELECT f(v) FROM t -- f\n /* with functions: see cdc show */")


@pytest.mark.parametrize(
    "option",
    [
        "on_error = pause",
        "execution_locality = 'a=b'",
        "executor_wait = '5s'",
        "give_up_after = '5s'",
        "master = 'local[2]'",
        "spark.x = 1",
    ],
)
def test_options_that_have_no_effect_without_a_sink_are_refused(option: str) -> None:
    with pytest.raises(OptionError, match=f"option '{option.split()[0]}' has no effect without a sink"):
        resolve_without_sink(made(f"CREATE CHANGEFEED FOR t WITH {option}"), PluginHost.load())
    resolve_without_sink(made(f"CREATE CHANGEFEED FOR t INTO 'file:///o' WITH {option}"), PluginHost.load())


def test_paths_in_references_are_relative_to_the_place_of_the_statement(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    changefeed = made(
        "CREATE CHANGEFEED FOR t INTO 'kafka://h:9092' WITH sasl_password = '${file:password}', sasl_enabled", tmp_path
    )
    assert changefeed.options["sasl_password"] == "hunter2"
    assert changefeed.written is not None
    assert changefeed.written["options"]["sasl_password"] == f"${{file:{tmp_path}/password}}"


def test_a_dollar_sign_in_the_name_of_a_table_is_no_reference() -> None:
    assert made("CREATE CHANGEFEED FOR \"a${x}\" INTO 'file:///o'").tables == ('"a${x}"',)


def test_what_is_missing_is_named() -> None:
    [parsed] = parse("CREATE CHANGEFEED FOR t INTO 'file:///o'")
    assert isinstance(parsed.statement, CreateChangefeed)
    with pytest.raises(ConfigError, match="name it with --source URI"):
        changefeed_of_statement(parsed.statement, "t", sources=[], directory=Path(), environ={})
    assert made("CREATE CHANGEFEED FOR t").sink == ""
    with pytest.raises(ConfigError, match="needs the environment variable 'NOT_SET'"):
        made("CREATE CHANGEFEED FOR t INTO 'file:///${NOT_SET}'")


@pytest.mark.parametrize(
    ("tables", "taken", "name"),
    [
        (["orders"], [], "orders"),
        (["public.orders"], ["orders"], "orders_2"),
        (["orders"], ["orders", "orders_2", "orders_3"], "orders_4"),
        (["public.orders", "users"], [], "orders_users"),
        (['"My Schema"."Or.ders"'], [], "Or_ders"),
        (['"Ünï Tab"'], [], "Uni_Tab"),
        (["public.*"], [], "public"),
        (["public.ord*"], [], "ord"),
        (["*"], [], "changefeed"),
        (['"été"."é"'], [], "e"),
        (['public."表"'], [], "changefeed"),
        ([f"table_number_{n}" for n in range(9)], [], "table_number_0"),
        (["t" * 63], [], "t" * 36),
    ],
)
def test_a_name_is_derived_from_the_tables(tables: list[str], taken: list[str], name: str) -> None:
    assert derived_name(tables, taken) == name
