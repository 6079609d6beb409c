"""`cdc demo kafka`: a changefeed to Kafka topics in Avro, and an audit of what a consumer reads."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc_rangefeed_postgres.demo.comparison import compare
from cdc_rangefeed_postgres.demo.empty import stay
from cdc_rangefeed_postgres.demo.movr import TABLES
from cdc_rangefeed_postgres.demo.saying import say, shown
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.demo.session import DemoOptions, Shop

from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.consumer import AvroConsumer
from cdc_sink_kafka.demo.registry import SchemaRegistry

_FEED = """\
# The changefeed of the demo. The password is in another file, so you can share this one.
[changefeed.movr]
{source}sink = "kafka://{bootstrap_servers}?topic_prefix={prefix}"
format = "avro"

[changefeed.movr.options]
confluent_schema_registry = "{registry}"
topic_partitions = 3
updated = true
resolved = "1s"
"""


def demo(arguments: Sequence[str]) -> int:
    """Run the demo and return its exit status: 0 when the audit finds that the topics match the database.

    KAFKA_BOOTSTRAP_SERVERS and SCHEMA_REGISTRY_URL name servers to use instead of the demo's own.
    """
    options = DemoOptions.parse(arguments, name="kafka", summary=_summary(), directory="cdc-demo-kafka")
    options.directory.mkdir(parents=True, exist_ok=True)
    with _servers() as servers, EmbeddedPostgres() as server:
        if options.empty:
            kafka = {"KAFKA_BOOTSTRAP_SERVERS": servers.bootstrap_servers, "SCHEMA_REGISTRY_URL": servers.registry_url}
            return stay(server, options.directory, **kafka)
        shutil.rmtree(options.directory / "state", ignore_errors=True)
        return _run(Shop(server, options), servers, options.directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Servers:
    bootstrap_servers: str
    registry_url: str
    registry: str
    """The URL as the changefeed has it: a reference, because the URL may contain a password."""
    prefix: str
    """Prefix of topics and subjects. It is unique to this run on servers that others use too."""


@contextmanager
def _servers() -> Iterator[_Servers]:
    """Yield the servers that the environment names, and start the others."""
    kafka, registry = os.environ.get("KAFKA_BOOTSTRAP_SERVERS"), os.environ.get("SCHEMA_REGISTRY_URL")
    with ExitStack() as own:
        bootstrap_servers = kafka or own.enter_context(KafkaBroker()).bootstrap_servers
        url = registry or own.enter_context(SchemaRegistry()).url
        say(f"Kafka runs at {bootstrap_servers}, with a schema registry")
        yield _Servers(
            bootstrap_servers=bootstrap_servers,
            registry_url=url,
            registry="${SCHEMA_REGISTRY_URL}" if registry else url,
            prefix=f"demo-{secrets.token_hex(3)}-" if kafka or registry else "",
        )


def _run(shop: Shop, servers: _Servers, directory: Path) -> int:
    file = directory / "demo.toml"
    file.write_text(
        _FEED.format(
            source=shop.source,
            bootstrap_servers=servers.bootstrap_servers,
            prefix=servers.prefix,
            registry=servers.registry,
        )
    )
    say(f"The changefeed is {shown(file)}")
    topics = {f"{servers.prefix}{table}": table for table in TABLES}
    with AvroConsumer(servers.bootstrap_servers, servers.registry_url, topics) as consumer:
        if not shop.follow(file, directory / "state", resolved=consumer.read):
            return 1
        consumer.read()
        replay = consumer.replay
    found = compare(replay, shop.uri, TABLES)
    rides = [row for _, row in replay.tables["rides"].values() if row is not None]
    say(f"The topics are {', '.join(topics)}. A consumer reads a message of {servers.prefix}rides as")
    say(json.dumps(json.loads(rides[-1]), ensure_ascii=False))
    say("Next: write a file like demo.toml for your own servers, then run  cdc check FILE  and  cdc run FILE")
    say(f"demo: {found}")
    return 0 if found.passed else 1


def _summary() -> str:
    assert __doc__ is not None
    return __doc__.partition(": ")[2]
