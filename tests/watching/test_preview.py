"""`cdc preview`: the messages as the sink would get them, and nothing is sent or registered."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, TEXT, Change, table
from cdc_conformance.rows import rows as rows_of
from cdc_schema_registry import Registry
from cdc_testing.documented_role import documented
from cdc_testing.kafka_fixtures import Registry as Server
from cdc_testing.pages import Page
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually

from cdc_core import Changefeed
from cdc_core.cli.main import cdc, main
from cdc_core.config.resolve import resolve
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.temporary_run import Item, TemporaryRun
from cdc_core.plugins.host import PluginHost
from cdc_core.rows import Op, RowBatch
from cdc_core.watching.preview import Previewed, _Messages, preview

LEFT = "SELECT pubname FROM pg_publication UNION ALL SELECT slot_name FROM pg_replication_slots"


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2), h jsonb)")
    sql.execute("""INSERT INTO orders VALUES (1, 9.90, '{"who": "me"}'), (2, NULL, NULL), (3, 1, NULL)""")
    return sql


def previewed(
    database: str, sink: str, *, format_: str = "json", rows: int = 20, live: bool = False, **options: Any
) -> list[Previewed]:
    feed = Changefeed(
        name="orders",
        source=documented(database),
        tables=("orders",),
        sink=sink,
        format=format_,
        options={"resolved": True} | options,
    )
    return list(preview(resolve(feed, PluginHost.load()), rows=rows, live=live))


def test_messages_are_those_of_the_kafka_sink(database: str, sql: Sql) -> None:
    options = {
        "topic_prefix": "shop_",
        "headers_json_column_name": "h",
        "extra_headers": {"team": "a"},
        "updated": True,
    }
    first, *others = previewed(database, "kafka://127.0.0.1:1", **options)
    assert (first.topic, first.key, first.headers) == ("shop_orders", "[1]", {"team": "a", "who": "me"})
    value = json.loads(first.value or "")
    assert value["after"] == {"id": 1, "total": 9.9}
    assert "updated" in value
    assert [message.key for message in others] == ["[2]", "[3]"]
    eventually("the end of the slot", lambda: not sql.execute(LEFT).fetchall())


@pytest.mark.parametrize(
    ("sink", "wanted"),
    [("kafka://b:1", "x_a"), ("webhook-https://localhost", "a"), ("file:///out?topic_prefix=x_", "x_a")],
)
def test_each_row_has_the_topic_that_a_query_gives_it(sink: str, wanted: str) -> None:
    options = {"topic_prefix": "x_"} if sink.startswith("kafka") else {}
    query = "SELECT *, note AS cdc_topic FROM orders"
    feed = Changefeed(name="c", source="postgresql://h/d", query=query, sink=sink, options=options)
    orders = table("orders", {"id": INT8, "note": TEXT})
    batch = rows_of(orders, [Change({"id": id_, "note": "n"}) for id_ in (1, 2, 3)]).batch
    routed = batch.append_column("topic", pa.array(["a", None, "b"]))
    found = list(_Messages(resolve(feed, PluginHost.load())).of(RowBatch(schema=orders, batch=routed)))
    assert [message.topic for message in found] == [wanted, "", wanted.replace("a", "b")]
    assert [message.key for message in found] == ["[1]", "[2]", "[3]"]
    assert "its cdc_topic is null" in (found[1].error or "")
    assert [message.error for message in found[::2]] == [None, None]


def test_a_preview_ends_after_the_rows_or_with_the_scan(database: str, sql: Sql) -> None:
    assert len(previewed(database, "kafka://127.0.0.1:1", rows=2)) == 2
    sql.execute("DELETE FROM orders")
    assert previewed(database, "kafka://127.0.0.1:1", initial_scan="no") == []


def test_changes_that_come_during_the_scan_are_left_out(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = TemporaryRun.items

    def with_changes(run: TemporaryRun) -> Iterator[Item]:
        for item in items(run):
            if isinstance(item, RowBatch):
                updates = pa.array([Op.UPDATE] * len(item), pa.uint8())
                place = item.batch.schema.get_field_index("op")
                changed = replace(item, batch=item.batch.set_column(place, item.batch.schema.field(place), updates))
                yield changed
                yield BadRow(row=changed.slice(0, 1), stage="encode", reason="too large")
            yield item

    monkeypatch.setattr(TemporaryRun, "items", with_changes)
    found = previewed(database, "kafka://127.0.0.1:1", rows=2)
    assert [(message.key, message.error) for message in found] == [("[1]", None), ("[2]", None)]


def test_live_shows_the_next_changes_and_their_tombstones(database: str, sql: Sql) -> None:
    found: list[Previewed] = []
    options = {"live": True, "rows": 2, "tombstones_on_delete": True}
    thread = threading.Thread(target=lambda: found.extend(previewed(database, "kafka://127.0.0.1:1", **options)))
    thread.start()
    eventually("the slot", lambda: len(sql.execute(LEFT).fetchall()) >= 2)
    with sql.transaction():
        sql.execute("INSERT INTO orders VALUES (4, 4, NULL)")
        sql.execute("DELETE FROM orders WHERE id = 1")
    thread.join(60)
    assert [(message.key, message.value and json.loads(message.value)["after"]) for message in found] == [
        ("[4]", {"h": None, "id": 4, "total": 4}),
        ("[1]", None),
        ("[1]", None),
    ]
    assert found[-1].value is None
    assert found[-2].value is not None


def test_files_have_what_their_sink_forces(database: str, sql: Sql, tmp_path: Path) -> None:
    first, *_ = previewed(database, f"file://{tmp_path}/out")
    assert first.key == "[1]"
    assert json.loads(first.value or "")["key"] == [1]
    assert list(tmp_path.iterdir()) == []


def test_binary_files_are_shown_decoded(database: str, sql: Sql, tmp_path: Path) -> None:
    for format_ in ("parquet", "avro"):
        first, *_ = previewed(database, f"file://{tmp_path}/out", format_=format_)
        assert first.decoded
        assert json.loads(first.value or "")["after"]["id"] == 1, format_
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_cannot_be_encoded_is_shown_among_the_others(database: str, sql: Sql) -> None:
    sql.execute("UPDATE orders SET h = '[1]' WHERE id = 2")
    found = previewed(database, "kafka://127.0.0.1:1", headers_json_column_name="h")
    assert sorted((message.key, message.error is None) for message in found) == [
        ("[1]", True),
        ("[2]", False),
        ("[3]", True),
    ]
    (refused,) = (message.error for message in found if message.error)
    assert "does not hold a JSON object" in refused


def test_the_command_prints_messages_and_says_that_nothing_was_sent(
    database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[changefeed.orders]\nsource = "{documented(database)}"\ntables = ["orders"]\nsink = "kafka://u:hush@127.0.0.1:1"\n'
        '[changefeed.orders.options]\nextra_headers = { team = "hush" }\nheaders_json_column_name = "h"\n'
    )
    assert main(["preview", str(file), "--rows", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "topic orders, key [1]",
        '  headers: {"team": "***", "who": "me"}',
        '  value: {"after": {"id": 1, "total": 9.90}}',
        "1 message; nothing was sent",
    ]
    assert main(["preview", str(file), "--rows", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "topic": "orders",
            "key": "[1]",
            "value": '{"after": {"id": 1, "total": 9.90}}',
            "headers": {"team": "***", "who": "me"},
            "decoded": False,
            "error": None,
        }
    ]
    sql.execute("UPDATE orders SET h = '[1]'")
    assert main(["preview", str(file), "--rows", "1"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"topic orders, key \[\d\]\n  error: the row of table \S+orders with key", out)
    assert out.endswith("0 messages, 1 row refused; nothing was sent\n")
    assert main(["preview", str(file), "--rows", "1", "--json"]) == 1
    [refused] = json.loads(capsys.readouterr().out)
    assert refused["value"] is None
    assert "the row of table" in refused["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["shop.toml"]


def test_avro_messages_are_decoded_and_no_schema_is_registered(
    database: str, sql: Sql, schema_registry: Server, topic_prefix: str
) -> None:
    options = {"confluent_schema_registry": schema_registry.url, "topic_prefix": topic_prefix}
    first, *_ = previewed(database, "kafka://127.0.0.1:1", format_="avro", **options)
    assert (first.key, first.decoded) == ("[1]", True)
    assert json.loads(first.value or "")["after"]["total"] == "9.90"
    registry = Registry.of(schema_registry.url, owner="test")
    assert registry.latest(f"{first.topic}-value") is None


def test_a_read_only_registry_gives_the_ids_that_schemas_have(schema_registry: Server, topic_prefix: str) -> None:
    registry = Registry.of(schema_registry.url, owner="test")
    looking = Registry.of(schema_registry.url, owner="test", read_only=True)
    schema = '{"type":"string"}'
    assert looking.register(f"{topic_prefix}a", schema, "AVRO") > 2**30
    assert looking.schema(looking.register(f"{topic_prefix}a", schema, "AVRO")) == schema
    assert looking.register(f"{topic_prefix}b", schema, "AVRO") != looking.register(f"{topic_prefix}a", schema, "AVRO")
    known = registry.register(f"{topic_prefix}c", schema, "AVRO")
    assert looking.register(f"{topic_prefix}c", schema, "AVRO") == known


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
