"""`cdc watch` prints messages as they come."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from cdc_schema_registry import Registry
from cdc_testing.command import Cdc
from cdc_testing.documented_role import documented
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually

import cdc_core
from cdc_core.cli.main import main
from cdc_core.cli.watch import _json_lines
from cdc_core.errors import ConfigError
from cdc_core.plugins.host import PluginHost
from cdc_core.watching.watch import WatchedRow

ONLY = ("--set", "initial_scan=only")
LEFT = "SELECT pubname FROM pg_publication UNION ALL SELECT slot_name FROM pg_replication_slots"


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed components, in place of the scripted ones of other tests here."""
    monkeypatch.setattr(PluginHost, "load", _load)


_load = cache(PluginHost.load)


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE office_dogs (id int PRIMARY KEY, name text)")
    sql.execute("INSERT INTO office_dogs VALUES (1, 'Petee')")
    return sql


def test_lines_are_those_of_the_client_of_cockroachdb(database: str, sql: Sql, cdc: Cdc) -> None:
    assert cdc("watch", "--source", documented(database), "--table", "office_dogs", *ONLY).out == (
        'table,key,value\noffice_dogs,[1],"{""after"": {""id"": 1, ""name"": ""Petee""}}"\n'
    )
    sql.execute(r"UPDATE office_dogs SET name = E'\x1b[2JPetee'")
    lines = cdc("watch", "--source", documented(database), "--table", "office_dogs", *ONLY, "--format", "csv").out
    assert lines == 'table,key,value\noffice_dogs,1,"1,\x1b[2JPetee"\n', "values in a file are whole"


def test_json_lines_have_the_messages_themselves(
    database: str, sql: Sql, capsys: pytest.CaptureFixture[str], cdc: Cdc
) -> None:
    command = ["watch", "--source", documented(database), "--table", "office_dogs", *ONLY, "--json"]
    assert main(command) == 0
    value = {"after": {"id": 1, "name": "Petee"}}
    assert json.loads(capsys.readouterr().out) == {"table": "office_dogs", "key": [1], "value": value}
    assert json.loads(cdc(*command, "--format", "csv").out)["value"] == "1,Petee"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"", None),
        (None, None),
        (b'{"a": 1}', {"a": 1}),
        (b'\0\0\0\0\x07{"a": 1}', "\\x00000000077b2261223a20317d"),
        (b'{"a": NaN}', '{"a": NaN}'),
        (b'{"a":\n1}', '{"a":\n1}'),
    ],
)
def test_a_json_line_is_json_whatever_the_message_is(value: bytes | None, shown: object) -> None:
    line = _json_lines([WatchedRow("t", b"[1]", value)], embedded=True)
    assert line.count("\n") == 1
    assert json.loads(line) == {"table": "t", "key": [1], "value": shown}


def test_a_schema_registry_is_only_asked_when_people_look_at_the_messages(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    def opened(address: str, *, owner: str, read_only: bool = False) -> None:
        raise ConfigError(f"read only: {read_only}")

    monkeypatch.setattr(Registry, "of", opened)
    registry = "confluent_schema_registry=http://localhost:1"
    command = [
        "watch",
        "--source",
        documented(database),
        "--table",
        "office_dogs",
        "--format",
        "avro",
        "--set",
        registry,
    ]
    assert "read only: True" in cdc.refused(*command)
    options = {"confluent_schema_registry": "http://localhost:1"}
    with (
        cdc_core.watch(source=documented(database), tables=["office_dogs"], format="avro", options=options) as rows,
        pytest.raises(ConfigError, match="read only: False"),
    ):
        next(rows)


def test_a_changefeed_of_a_file_is_watched_without_its_sink(database: str, sql: Sql, tmp_path: Path, cdc: Cdc) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[changefeed.dogs]\nsource = "{documented(database)}"\ntables = ["office_dogs"]\nsink = "file://{tmp_path}/out"\n'
        '[changefeed.dogs.options]\ninitial_scan = "only"\npartition_format = "flat"\n'
    )
    assert "key_in_value" not in (out := cdc("watch", file).out)
    assert len(out.splitlines()) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.toml"]


def test_a_changefeed_of_a_file_needs_no_sink_to_be_watched(
    database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str], cdc: Cdc
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[changefeed.dogs]\nsource = "{documented(database)}"\ntables = ["office_dogs"]\n'
        '[changefeed.dogs.options]\nresolved = "1s"\nUPDATED = true\nkey_in_value = true\n'
    )
    for only in (ONLY, ("--set", "INITIAL_SCAN=Only")):
        assert len(cdc("watch", file, *only).out.splitlines()) == 2
    assert main(["watch", str(file), *ONLY, "--set", "updated=true"]) == 2
    assert "a scan has only one timestamp; remove 'updated'" in capsys.readouterr().err
    for command in ("run", "check", "preview"):
        assert "changefeed 'dogs' has no sink to deliver to; set 'sink', or use" in cdc.refused(command, file)


@pytest.mark.parametrize("resolved", [True, False])
def test_an_interrupt_ends_it_and_leaves_nothing(database: str, sql: Sql, resolved: bool) -> None:
    command = [sys.executable, "-m", "cdc_core", "watch", "--source", documented(database), "--table", "office_dogs"]
    options = ("--set", f"resolved={str(resolved).lower()}", "--set", "updated=true")
    child = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(3 if resolved else 2)]
    assert lines[1].startswith("office_dogs,[1],")
    for line in lines[2:]:
        (mark,) = csv.reader(io.StringIO(line))
        assert mark[:2] == ["NULL", "NULL"]
        assert "resolved" in json.loads(mark[2])
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert (child.returncode, error) == (130, "\ninterrupted\n")
    eventually("the end of the slot", lambda: not sql.execute(LEFT).fetchall())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "nothing to watch; name a FILE with a changefeed, or a --source with --table or --query"),
        (
            ("shop.toml", "--table", "t"),
            "FILE cannot be combined with --source, --table and --query, because either describes what to watch",
        ),
        (("--source", "postgresql://a@b/c"), "nothing to watch; name a FILE"),
        (("--source", "postgresql://a@b/c", "--table", "t", "--set", "updated"), "write --set NAME=VALUE"),
        (("--source", "postgresql://a@b/c", "--table", "t", "--set", "colour=1"), "has no option 'colour'"),
        (("--source", "postgresql://a:hush@b/c", "--table", "t", "--store", "x"), "remove --store or --source"),
        *(
            (
                ("--source", "postgresql://a@b/c", "--table", "t", "--set", f"{name}=x"),
                f"'{name}' has no effect without",
            )
            for name in ("on_error", "DEAD_LETTER", "metrics_label", "gc_protect_expires_after", "spark.ui.port")
        ),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, ...], complaint: str, cdc: Cdc) -> None:
    error = cdc.refused("watch", *arguments)
    assert complaint in error
    assert "hush" not in error
