"""The same as test_scan_values on older servers, with the extensions that come with them."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS
from cdc_testing.versions import MAJORS

_EXTENSIONS = {"hstore": 'a=>1, "b c"=>NULL', "citext": "ÄbC", "ltree": "a.b.c", "cube": "(1,2,3)"}
_XML = ['<?xml version="1.0" encoding="UTF-8"?><a>é</a>', '<?xml version="1.1" standalone="yes"?><a/>', "<a> </a>"]

pytestmark = pytest.mark.slow


@pytest.fixture(params=MAJORS)
def older_server(
    request: pytest.FixtureRequest, postgres_version: Callable[[int], EmbeddedPostgres]
) -> EmbeddedPostgres:
    return postgres_version(request.param)


def _probe(server: EmbeddedPostgres, database: str) -> LogProbe:
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    return LogProbe(server.uri(database))


def test_every_type_is_the_same_in_scan_and_log(older_server: EmbeddedPostgres) -> None:
    with _probe(older_server, "types") as probe:
        ((number,),) = probe.execute("SELECT current_setting('server_version_num')::int")
        # a negative scale came with version 15
        makers = {name: make for name, make in BINARY_MAKERS.items() if number >= 150000 or ",-" not in name}
        probe.fill("t", makers, seed=11)
        version = probe.version("t")
        scanned = probe.scan(version)
        probe.assert_log_is(scanned, binary=True)
        probe.assert_log_is(scanned, binary=False)
    with _probe(older_server, "texts") as probe:
        probe.fill("t", TEXT_MAKERS, seed=12)
        probe.assert_log_is(probe.scan(probe.version("t")), binary=False)


def test_types_of_extensions_and_xml_are_read_as_text(older_server: EmbeddedPostgres) -> None:
    with _probe(older_server, "extensions") as probe:
        there = {name for (name,) in probe.execute("SELECT name FROM pg_available_extensions")}
        values = {name: text for name, text in _EXTENSIONS.items() if name in there}
        for name in values:
            probe.execute(f"CREATE EXTENSION {name}")
        columns = "".join(f", {name} {name}, {name}s {name}[]" for name in values)
        probe.execute(f"CREATE TABLE t (id int PRIMARY KEY, x xml{columns})")
        probe.watch("t")
        for id_, document in enumerate(_XML):
            marks = "".join(f", %s::{name}, ARRAY[%s::{name}]" for name in values)
            doubled = [text for text in values.values() for _ in range(2)]
            probe.execute(f"INSERT INTO t VALUES ({id_}, %s::xml{marks})", [document, *doubled])
        scanned = probe.scan(probe.version("t"))
        probe.assert_log_is(scanned, binary=False)
        assert scanned.field("x").to_pylist() == ["<a>é</a>", _XML[1], "<a> </a>"]
        if "hstore" in values:
            assert scanned.field("hstore")[0].as_py() == '"a"=>"1", "b c"=>NULL'
