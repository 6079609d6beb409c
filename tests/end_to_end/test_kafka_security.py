"""A complete run with a broker that demands TLS and a password: rows arrive, and nothing reveals the password."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from urllib.parse import quote

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.counts import Counts
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_fixtures import KAFKA_PASSWORD, KAFKA_USER
from cdc_testing.kafka_reading import Message, read_topics
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.shared_servers import SecuredKafka
from cdc_testing.shown_secrets import shown_secrets

from cdc_core import Timestamp

pytestmark = pytest.mark.slow

ROWS = 500
DELETED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The feed and its messages after the runs."""

    feed: Feed
    messages: list[Message]

    def rows(self) -> list[tuple[bytes, Message]]:
        """Return the messages with a key, and their keys."""
        return [(message.key, message) for message in self.messages if message.key is not None]


@pytest.fixture(scope="module")
def outcome(
    kept_spark: KeptSpark,
    postgres_server: EmbeddedPostgres,
    secured_broker: SecuredKafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcome]:
    """One run for the table and one for deleted rows, in the envelope `row`."""
    ca = quote(base64.b64encode(secured_broker.certificates.ca.read_bytes()).decode(), safe="")
    sink = (
        f"kafka://{secured_broker.address('SASL_SSL')}?tls_enabled=true&ca_cert={ca}&sasl_enabled=true"
        f"&sasl_mechanism=SCRAM-SHA-512&sasl_user={KAFKA_USER}&sasl_password={quote(KAFKA_PASSWORD, safe='')}"
    )
    options = {
        "envelope": "row",
        "updated": False,
        "topic_prefix": "secure-",
        "kafka_sink_config": {"Compression": "ZSTD"},
        "extra_headers": {"origin": "shop"},
        "header_table": "table",
        "header_updated": "updated",
    }
    with fresh_database(postgres_server) as uri, psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, %s) n", [ROWS])
        with Feed(tmp_path_factory.mktemp("feed"), uri, ["orders"], sink=sink, options=options) as feed:
            feed.once(kept_spark)
            connection.execute("DELETE FROM orders WHERE id <= %s", [DELETED])
            feed.once(kept_spark)
            yield Outcome(feed=feed, messages=read_topics(secured_broker.bootstrap_servers, ["secure-orders"]))


def test_every_row_arrives_through_tls_and_scram(outcome: Outcome, counts: Counts) -> None:
    rows = [(json.loads(key), json.loads(row.value)) for key, row in outcome.rows() if row.value is not None]
    assert sorted(rows, key=itemgetter(0)) == [([n], {"id": n, "note": f"order {n}"}) for n in range(1, ROWS + 1)]
    marks = [message for message in outcome.messages if message.key is None]
    assert {message.partition for message in marks} == {0, 1, 2}
    counts(rows=len(outcome.rows()), marks=len(marks))


def test_a_deleted_row_is_a_tombstone_after_the_row(outcome: Outcome, counts: Counts) -> None:
    tombstones = [(key, message) for key, message in outcome.rows() if message.value is None]
    assert sorted(json.loads(key) for key, _ in tombstones) == [[n] for n in range(1, DELETED + 1)]
    for key, tombstone in tombstones:
        (row,) = (row for other, row in outcome.rows() if other == key and row.value is not None)
        assert row.partition == tombstone.partition
        assert row.offset < tombstone.offset
    counts(tombstones=len(tombstones))


def test_rows_have_the_headers_of_the_options(outcome: Outcome) -> None:
    rows = outcome.rows()
    assert len(rows) >= ROWS + DELETED
    for _, message in rows:
        headers = dict(message.headers)
        assert headers["origin"] == b"shop"
        table = headers["table"]
        assert table is not None
        assert table.endswith(b".public.orders")
        updated = headers["updated"]
        assert updated is not None
        assert Timestamp.parse(updated.decode()) > Timestamp()


def test_the_password_is_in_no_log_and_not_in_the_state(outcome: Outcome, kept_spark: KeptSpark) -> None:
    places = (outcome.feed.directory, kept_spark.directory)
    files = [path for place in places for path in place.rglob("*") if path.is_file() and path != outcome.feed.toml]
    assert {outcome.feed.log_path, kept_spark.directory / "spark.log"} <= set(files)
    assert [path for path in files if shown_secrets(path.read_bytes(), [KAFKA_PASSWORD])] == []
    with sqlite3.connect(next(outcome.feed.state.glob("*.sqlite"))) as store:
        dump = "\n".join(store.iterdump())
    store.close()
    assert "kafka://127.0.0.1" in dump
    assert shown_secrets(dump, [KAFKA_PASSWORD]) == []
