"""A place at the destination that was deleted and created again is not taken for the one that has the rows."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg
import pytest
from cdc_testing.components import SilentDestination, encoder, host, rangefeed, sink
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import clock
from cdc_testing.thread_host import ThreadEngine

from cdc_core import Changefeed, TableName, TableSchema, TerminalError
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine import places
from cdc_core.engine.places import compare_places, keep_places
from cdc_core.engine.start_position import register
from cdc_core.store.progress import ProgressStore, store_url

TABLES = [TableSchema(name=TableName("shop", "public", "orders"), version=1, columns=(), primary_key=())]


class Rooms(SilentDestination):
    """Answers one after the other, and the last one for ever."""

    answers: Sequence[Mapping[str, str | None]] = ()

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:
        assert topics == ()
        first, *rest = Rooms.answers
        Rooms.answers = rest or [first]
        return first


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    with closing(ProgressStore(store_url(tmp_path))) as store:
        yield store


@pytest.fixture
def feed(store: ProgressStore, monkeypatch: pytest.MonkeyPatch) -> ResolvedChangefeed:
    monkeypatch.setattr(places, "_SURE_AFTER_S", 0.05)
    monkeypatch.setattr(places, "_ASK_S", 0.001)
    return begun(store, "shelf://room")


def begun(store: ProgressStore, uri: str) -> ResolvedChangefeed:
    plugins = host(rangefeed(), encoder(), sink(destination=f"{__name__}:Rooms"))
    changefeed = Changefeed(name="orders", source="paper://desk/shop", tables=("public.orders",), sink=uri)
    feed = resolve(changefeed, plugins)
    return feed.for_attempt(feed_id=register(feed, store).feed_id, epoch=store.changefeeds.begin_attempt("orders"))


def answering(*answers: Mapping[str, str | None]) -> None:
    Rooms.answers = answers


def test_a_place_that_is_another_one_ends_one_run(store: ProgressStore, feed: ResolvedChangefeed) -> None:
    answering({"room 'a'": "1", "room 'b'": "2"})
    for _ in range(2):
        compare_places(feed, store, TABLES)
    answering({"room 'a'": "1", "room 'b'": "3", "room 'c'": "4"})
    with pytest.raises(TerminalError) as failed:
        compare_places(feed, store, TABLES)
    assert not failed.value.repairable
    assert str(failed.value) == (
        "room 'b' was deleted and created again since the changefeed delivered there, so data that consumers need is"
        " gone. Run the changefeed again to continue without that data. To emit all rows again, first run `cdc rescan"
        " FILE NAME --all`"
    )
    compare_places(feed, store, TABLES)
    assert store.progress.places("orders") == {"room 'a'": "1", "room 'b'": "3", "room 'c'": "4"}


def test_a_place_that_is_gone_ends_one_run(store: ProgressStore, feed: ResolvedChangefeed) -> None:
    answering({"room 'a'": "1"})
    compare_places(feed, store, TABLES)
    answering({"room 'a'": None})
    with pytest.raises(TerminalError, match=r"^room 'a' was deleted since the changefeed delivered there"):
        compare_places(feed, store, TABLES)
    answering({"room 'a'": "2"})
    compare_places(feed, store, TABLES)


def test_a_place_that_is_missing_for_a_moment_is_awaited(
    store: ProgressStore, feed: ResolvedChangefeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_SURE_AFTER_S", 60.0)
    answering({"room 'a'": "1"})
    compare_places(feed, store, TABLES)
    answering({"room 'a'": None}, {}, {"room 'a'": "1"})
    compare_places(feed, store, TABLES)
    assert store.progress.places("orders") == {"room 'a'": "1"}


def test_a_place_that_cannot_be_told_is_remembered(store: ProgressStore, feed: ResolvedChangefeed) -> None:
    answering({"room 'a'": "1"}, {}, {"room 'a'": "2"})
    compare_places(feed, store, TABLES)
    compare_places(feed, store, TABLES)
    with pytest.raises(TerminalError):
        compare_places(feed, store, TABLES)


def test_what_an_error_has_told_is_not_told_again(store: ProgressStore, feed: ResolvedChangefeed) -> None:
    answering(
        {"room 'a'": "1", "room 'b'": "1"}, {"room 'a'": "2", "room 'b'": None}, {"room 'a'": "2", "room 'b'": "2"}
    )
    compare_places(feed, store, TABLES)
    keep_places(feed, store, TABLES)
    compare_places(feed, store, TABLES)


def test_another_destination_has_other_places(store: ProgressStore, feed: ResolvedChangefeed) -> None:
    answering({"room 'a'": "1"}, {"room 'a'": "2"})
    compare_places(feed, store, TABLES)
    compare_places(begun(store, "shelf://other"), store, TABLES)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (None, "room was deleted and created again"),
        ("RetryableSinkError busy", "room was deleted and created again"),
        ("DestinationLostError told elsewhere", "told elsewhere"),
    ],
)
def test_a_place_that_changes_during_a_run_is_told_once(
    failure: str | None, message: str, make_engine: Callable[[], ThreadEngine]
) -> None:
    engine = make_engine()
    place = engine.directory / "places"
    place.write_text('{"room": "1"}')
    if failure is not None:
        engine.script.order("flush", failure)
    with pytest.raises(TerminalError, match=message):
        engine.run(total=1000, rows_per_step=500, before_step=lambda: place.write_text('{"room": "2"}'))
    assert engine.run(total=1000, rows_per_step=500) == 0
    assert engine.journal.faults(total=1000) == []


def test_a_place_that_changes_before_another_failure_is_told_by_the_next_start(
    make_engine: Callable[[], ThreadEngine],
) -> None:
    engine = make_engine()
    place = engine.directory / "places"
    place.write_text('{"room": "1"}')
    engine.script.order("flush", "TerminalSinkError full")
    with pytest.raises(TerminalError, match="full"):
        engine.run(total=1000, rows_per_step=500, before_step=lambda: place.write_text('{"room": "2"}'))
    with pytest.raises(TerminalError, match="room was deleted and created again"):
        engine.run(total=1000, rows_per_step=500)
    assert engine.run(total=1000, rows_per_step=500) == 0


@pytest.mark.parametrize("who", ["explicit", "auto"])
def test_a_topic_that_was_created_again_while_stopped_ends_the_next_start(
    who: str, database: str, kafka_broker: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as opened, psycopg.connect(database, autocommit=True) as connection:
        kafka = KafkaRig(kafka_broker.bootstrap_servers, topic_prefix, opened)
        connection.execute("CREATE TABLE rows (id int PRIMARY KEY)")
        connection.execute("INSERT INTO rows SELECT generate_series(1, 9)")
        options = {"topic_name": kafka.topic, "create_kafka_topics": who}
        feed = resolved_feed(database, f"kafka://{kafka.address}", "rows", options=options)

        def run() -> None:
            with closing(LocalEngine(feed, tmp_path)) as engine:
                engine.run()
                engine.until(clock(database))

        kafka.create_topic()
        run()
        run()
        kafka.delete_topic()
        kafka.create_topic()
        connection.execute("INSERT INTO rows VALUES (10)")
        with pytest.raises(TerminalError, match=f"^topic '{kafka.topic}' was deleted and created again"):
            run()
        assert kafka.received() == []
        run()
        assert b"[10]" in [message.key for message in kafka.received()]


@pytest.mark.parametrize("format_", ["avro", "json"])
def test_a_registry_that_was_emptied_while_stopped_ends_the_next_start(
    format_: str, database: str, kafka_broker: Kafka, schema_registry: Registry, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as opened, psycopg.connect(database, autocommit=True) as connection:
        kafka = KafkaRig(kafka_broker.bootstrap_servers, topic_prefix, opened)
        connection.execute("CREATE TABLE rows (id int PRIMARY KEY)")
        connection.execute("INSERT INTO rows VALUES (1)")
        options = {"topic_name": kafka.topic, "confluent_schema_registry": schema_registry.url}
        feed = resolved_feed(database, f"kafka://{kafka.address}", "rows", options=options, format_=format_)

        def run() -> None:
            with closing(LocalEngine(feed, tmp_path)) as engine:
                engine.run()
                engine.until(clock(database))

        run()
        run()
        for query in ("", "?permanent=true"):
            request = urllib.request.Request(
                f"{schema_registry.url}/subjects/{kafka.topic}-value{query}", method="DELETE"
            )
            with suppress(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=30).close()
        connection.execute("INSERT INTO rows VALUES (2)")
        with pytest.raises(
            TerminalError, match=f"^schema .* of subject '{kafka.topic}-value' in registry .* was deleted"
        ):
            run()
        run()
