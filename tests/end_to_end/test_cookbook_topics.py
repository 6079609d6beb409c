"""The recipes of the cookbook for Kafka put into topics what their pages show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from cdc_testing.cookbook import PAGES, SECRETS, Dish, cook, functions, masked, page_of, recipes, shown
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.kafka_reading import Message
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page
from cdc_testing.thread_host import KeptThreads
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = pytest.mark.slow

Dishes = Mapping[str, Dish]
SERVICES, TOPICS = page_of("services"), page_of("topics")


@pytest.fixture(scope="module")
def dishes(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: CopiedPostgres,
    kafka_broker: Kafka,
    schema_registry: Registry,
    kept_spark: KeptSpark,
    kept_threads: KeptThreads,
) -> Iterator[Dishes]:
    """The recipes of Kafka, by the names of their changefeeds, after both of their runs."""
    directory = tmp_path_factory.mktemp("cookbook")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        found = {}
        for recipe in (recipe for page in PAGES for recipe in recipes(page_of(page))):
            if "kafka://" in recipe.toml:
                databases = [stack.enter_context(fresh_database(postgres_server))]
                found[recipe.name] = Dish(
                    recipe,
                    directory,
                    databases,
                    kafka=kafka_broker.bootstrap_servers,
                    registry=schema_registry.url,
                    prefix=f"{recipe.name}_{directory.name}_",
                )
        cook(kept_threads, [dish for name, dish in found.items() if name != "notes"])
        cook(kept_spark, [found["notes"]])
        yield found


@pytest.mark.parametrize(
    ("name", "page", "heading"),
    [
        ("cache", SERVICES, "Cache invalidation"),
        ("customers", TOPICS, "Compacted topic"),
        ("notes", TOPICS, "A topic for each tenant"),
    ],
)
def test_topics_have_what_the_page_shows(dishes: Dishes, name: str, page: Page, heading: str) -> None:
    (expected,) = shown(page, heading, "text")
    assert masked(dishes[name].arrived()) == masked(expected.splitlines())


class ClientMessage:
    """A message as a client of Kafka has it."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def key(self) -> bytes | None:
        return self._message.key

    def value(self) -> bytes | None:
        return self._message.value


def test_a_service_has_the_current_rows_also_after_a_repeat(dishes: Dishes) -> None:
    apply = functions(TOPICS, "Compacted topic")["apply"]
    rows: dict[tuple[int, ...], Any] = {}
    messages = [ClientMessage(message) for message in dishes["customers"].messages()]
    for message in [*messages, *messages[2:]]:
        apply(message, rows)
    assert rows == {(1,): {"id": 1, "name": "Ann", "city": "Bergen"}}


def test_a_cache_loses_what_changed(dishes: Dishes) -> None:
    class Cache(dict[str, str]):
        def delete(self, name: str) -> None:
            self.pop(name, None)

    invalidate = functions(SERVICES, "Cache invalidation")["invalidate"]
    cache = Cache({"product:1": "lamp", "product:2": "desk", "product:3": "sofa"})
    for message in dishes["cache"].messages():
        invalidate(ClientMessage(message), cache)
    assert cache == {"product:3": "sofa"}


def test_a_consumer_of_avro_gets_the_added_column(dishes: Dishes, schema_registry: Registry) -> None:
    (expected,) = shown(TOPICS, "Avro with a registry", "json")
    messages = dishes["customers_avro"].messages()
    with SchemaRegistryClient({"url": schema_registry.url}) as registry:
        read = AvroDeserializer(registry)
        values = [
            read(message.value or b"", SerializationContext(message.topic, MessageField.VALUE)) for message in messages
        ]
        subject = f"{messages[0].topic}-value"
        assert len(registry.get_versions(subject)) == 2
    lines = [json.dumps({name: value[name] for name in ("after", "updated")}) for value in values if value]
    assert masked(lines) == masked(expected.splitlines())
