"""`cdc debug` against a real source: what it keeps for the changefeed, and no password."""

from __future__ import annotations

import json
import tarfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_testing.documented_role import ROLE
from cdc_testing.shown_secrets import shown_secrets

from cdc_core.cli.main import main
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.engine.start_position import register, start_token
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

PASSWORD = "p4ss/w:rd with+signs"


@pytest.fixture
def uri(database: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("DROP ROLE IF EXISTS archivist")
        connection.execute(f"CREATE ROLE archivist REPLICATION LOGIN PASSWORD '{PASSWORD}' IN ROLE {ROLE}")
    return f"postgresql://archivist:{quote(PASSWORD, safe='')}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def test_the_archive_tells_of_slot_and_publication_and_of_a_source_that_is_gone(
    uri: str, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_TEST_SOURCE", uri)
    file = tmp_path / "shop.toml"
    file.write_text(
        '[changefeed.orders]\nsource = "${CDC_TEST_SOURCE}"\ntables = ["public.orders"]\n'
        f'sink = "file://{tmp_path}/out"\n'
    )
    feed = resolve(read_changefeed(file, None), PluginHost.load())
    with closing(ProgressStore(store_url(tmp_path / ".cdc"))) as store:
        known = register(feed, store)
        feed = feed.for_attempt(feed_id=known.feed_id, epoch=store.changefeeds.begin_attempt("orders"), state=store.url)
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            token = start_token(feed, store, rangefeed)
        first, printed = collected(file, tmp_path / "first.tar.gz", capsys)
        assert printed.count("\n") == 1, first
        source = json.loads(first["source.json"])
        assert source["tables"][0]["columns"] == {"id": "integer"}
        [kept] = source["created"]
        assert "replication slot" in kept["kinds"]
        assert kept["retained_bytes"] >= 0
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            rangefeed.drop(token)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER ROLE archivist NOLOGIN")
    second, printed = collected(file, tmp_path / "second.tar.gz", capsys)
    assert "without source.json" in printed
    assert "not permitted to log in" in second["source.json.error"]
    assert "progress.json" in second
    for text in (*first.values(), *second.values()):
        assert shown_secrets(text, [PASSWORD]) == []


def collected(file: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], str]:
    assert main(["debug", str(file), "-o", str(path)]) == 0
    with tarfile.open(path) as tar:
        members = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar.getmembers()}
        return {name: found.read().decode() for name, found in members.items() if found}, capsys.readouterr().out
