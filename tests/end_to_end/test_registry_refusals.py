"""An unusable registry or a refused schema: one error, exit status 2, and nothing is created."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg
import pytest
from cdc_schema_registry import Registry
from cdc_testing.kafka_fixtures import Kafka, ProxyFactory
from cdc_testing.kafka_fixtures import Registry as Server
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed

from cdc_core.cli.main import main

FORMATS = ["avro", "json"]
FeedOf = Callable[..., Feed]
Refused = Callable[..., str]


@pytest.fixture
def table(database: str) -> str:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    return database


@pytest.fixture
def feed_of(table: str, tmp_path: Path, kafka_broker: Kafka) -> FeedOf:
    """Returns a feed of the table, into Kafka by default."""

    def of(format_: str, options: Mapping[str, object], *, sink: str | None = None) -> Feed:
        plain = {"updated": False} if "envelope" in options else {}
        into = sink or f"kafka://{kafka_broker.bootstrap_servers}"
        return Feed(tmp_path, table, ["orders"], options={**plain, **options}, sink=into, format_=format_)

    return of


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], kept_spark: KeptSpark) -> Refused:
    """Returns the output of `cdc check` or `cdc run`, which must exit with status 2."""

    def said(feed: Feed, *, command: str = "check") -> str:
        arguments = [command, str(feed.toml), *(["--state", str(feed.state)] if command == "run" else [])]
        with kept_spark.lent():
            status = main(arguments)
        out, err = capsys.readouterr()
        assert status == 2, out + err
        assert "Traceback" not in err
        return out + err

    return said


@pytest.mark.parametrize(("format_", "command"), [("avro", "check"), ("json", "check"), ("json", "run")])
def test_an_unreachable_registry_is_named_without_its_password(
    refused: Refused, feed_of: FeedOf, table: str, format_: str, command: str
) -> None:
    options = {"confluent_schema_registry": "http://me:geh%2Feim@127.0.0.1:1/api"}
    feed = feed_of(format_, options)
    said = refused(feed, command=command)
    assert "schema registry http://127.0.0.1:1/api is unreachable: " in said
    assert "eim" not in said
    with psycopg.connect(table) as connection:
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchall() == []


@pytest.mark.parametrize("format_", FORMATS)
def test_a_wrong_password_is_refused(
    refused: Refused, feed_of: FeedOf, registry_proxy: ProxyFactory, format_: str
) -> None:
    proxy = registry_proxy(user="me", password="right")
    url = proxy.url.replace("://", "://me:geheim@")
    said = refused(feed_of(format_, {"confluent_schema_registry": url}))
    assert f"schema registry {proxy.url} rejected the credentials" in said
    assert "geheim" not in said


@pytest.mark.parametrize("format_", FORMATS)
def test_an_incompatible_schema_is_refused_with_both_schemas(
    refused: Refused,
    feed_of: FeedOf,
    schema_registry: Server,
    set_compatibility: Callable[[str, str], None],
    topic_prefix: str,
    format_: str,
) -> None:
    subject = f"{topic_prefix}orders-value"
    registry = Registry.of(schema_registry.url, owner="test")
    if format_ == "avro":
        registry.register(subject, json.dumps({"type": "record", "name": "other", "fields": []}), "AVRO")
    else:
        other = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "title": "other"}
        registry.register(subject, json.dumps(other), "JSON")
    set_compatibility(subject, "BACKWARD")
    options = {"confluent_schema_registry": schema_registry.url, "topic_prefix": topic_prefix}
    said = refused(feed_of(format_, options))
    assert f"refused the new schema of subject '{subject}' as incompatible: " in said
    assert "the registered schema is version 1, " in said
    assert '"other"' in said
    assert "orders_envelope" in said


@pytest.mark.parametrize("format_", FORMATS)
def test_an_unknown_parameter_is_refused_with_a_suggestion(refused: Refused, feed_of: FeedOf, format_: str) -> None:
    feed = feed_of(format_, {"confluent_schema_registry": "https://me:geheim@host?timeuot=1s"})
    said = refused(feed)
    assert f"encoder '{format_}': option 'confluent_schema_registry'" in said
    assert "did you mean 'timeout'?" in said
    assert "geheim" not in said


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"envelope": "row", "updated": True}, "envelope 'row' has no place for 'updated'; use 'wrapped' or 'bare'"),
        ({"envelope": "key_only", "key_in_value": True}, "envelope 'key_only' has no place for 'key_in_value'"),
        ({"envelope": "debezium"}, "option 'envelope' is 'debezium': must be one of wrapped, bare, "),
    ],
)
def test_options_without_a_place_in_the_envelope_are_refused(
    refused: Refused, feed_of: FeedOf, options: dict[str, object], complaint: str
) -> None:
    feed = feed_of("json", options)
    assert complaint in refused(feed)


def test_files_refuse_tombstones_and_schema_ids(refused: Refused, feed_of: FeedOf, tmp_path: Path) -> None:
    for options, complaint in (
        ({"envelope": "row"}, "sink 'cloudstorage' does not accept envelope 'row'; it accepts bare, enriched, wrapped"),
        ({"confluent_schema_registry": "http://127.0.0.1:1"}, "'confluent_schema_registry' applies to messages only"),
    ):
        feed = feed_of("json", options, sink=f"file://{tmp_path / 'files'}")
        assert complaint in refused(feed)
