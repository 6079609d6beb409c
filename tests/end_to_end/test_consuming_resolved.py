"""The consumer in the documentation: each cut that it returns is a state that the database had."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import psycopg
import pytest
from cdc_testing.bank import TABLES, Bank, open_bank
from cdc_testing.imports import ROOT
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import add_partitions
from cdc_testing.postgres import clock
from cdc_testing.runs import Feed, eventually
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

EXAMPLE = ROOT / "docs" / "examples" / "consume_resolved.py"
TOPICS = ("accounts", "closed")
_RECORD = """
CREATE TABLE history (seq bigserial PRIMARY KEY, tx text, name text, id bigint, row jsonb);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO history (tx, name, id) VALUES (pg_current_xact_id()::text, TG_TABLE_NAME, OLD.id);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO history (tx, name, id, row)
            VALUES (pg_current_xact_id()::text, TG_TABLE_NAME, NEW.id, to_jsonb(NEW));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON accounts FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON closed FOR EACH ROW EXECUTE FUNCTION note();
"""
_COMMITS = (
    "SELECT substring(data FROM 8) FROM pg_logical_slot_peek_changes('commits', NULL, NULL) WHERE data ^@ 'COMMIT'"
)


class State:
    """Rows by table and id. `digest` is equal for equal rows, whatever the history."""

    def __init__(self) -> None:
        self.digest = 0
        self._rows: dict[tuple[str, int], int] = {}

    def put(self, name: str, id_: int, row: Mapping[str, Any] | None) -> None:
        self.digest ^= self._rows.pop((name, id_), 0)
        if row is not None:
            text = json.dumps([name, id_, row], sort_keys=True)
            self._rows[name, id_] = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
            self.digest ^= self._rows[name, id_]


def record(connection: psycopg.Connection[Any]) -> None:
    """Make the database record the changes of every transaction, and a slot record the order of commits."""
    connection.execute(_RECORD)
    for name in TOPICS:
        connection.execute(
            f"INSERT INTO history (tx, name, id, row) SELECT 'start', '{name}', id, to_jsonb(t) FROM {name} t"
        )
    connection.execute("SELECT pg_create_logical_replication_slot('commits', 'test_decoding')")


def states(connection: psycopg.Connection[Any]) -> dict[int, int]:
    """Return the digest of the state after each transaction, each with the number of transactions before it."""
    changes: dict[str, list[tuple[str, int, Any]]] = {}
    for tx, *change in connection.execute("SELECT tx, name, id, row FROM history ORDER BY seq"):
        changes.setdefault(tx, []).append((change[0], change[1], change[2]))
    state, found = State(), {}
    for number, tx in enumerate(["start", *(tx for (tx,) in connection.execute(_COMMITS))]):
        for name, id_, row in changes.get(tx, ()):
            state.put(name, id_, row)
        found[state.digest] = number
    return found


def example() -> Any:
    spec = importlib.util.spec_from_file_location("consume_resolved", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FewAtATime(kafka.Consumer):
    """Returns few messages at a time, so that the positions in large partitions are far apart."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[kafka.Message]:
        return super().consume(min(num_messages, 100), timeout)


class Consumer:
    """Applies the changes that the example's reader returns. `cuts` are the digests of the states."""

    def __init__(self, brokers: str, prefix: str, *, group: str) -> None:
        self.cuts: list[int] = []
        self.rows = 0
        self.partitions: set[tuple[str, int]] = set()
        self.last = ""
        self._brokers, self._prefix, self._group = brokers, prefix, prefix + group
        self._state = State()
        self._module = example()
        self._module.Consumer = FewAtATime
        self.restart()

    def restart(self) -> None:
        """Start again after the last cut that was applied, as a process does after a crash."""
        topics = [self._prefix + topic for topic in TOPICS]
        self._reader = self._module.ResolvedReader(self._brokers, topics, group=self._group, after=self.last)

    def read(self) -> None:
        rows = self._reader.poll(timeout_s=0.05)
        if rows is not None:
            self._apply(rows)
            self.last = self._reader.cut
            self.cuts.append(self._state.digest)
            if len(self.cuts) % 3 == 0:
                self._reader.commit()

    def has_cuts(self, count: int) -> bool:
        self.read()
        return len(self.cuts) >= count

    def has(self, target: str) -> bool:
        self.read()
        return self.last >= target

    def has_rows_of(self, partition: tuple[str, int]) -> bool:
        self.read()
        return partition in self.partitions

    def _apply(self, rows: Iterable[Any]) -> None:
        for row in rows:
            self.rows += 1
            self.partitions.add(row.place)
            (id_,) = json.loads(row.key)
            self._state.put(row.topic.removeprefix(self._prefix), id_, row.after)


def assert_true_to(had: Mapping[int, int], cuts: Sequence[int], *, least: int) -> None:
    """Check that *cuts* are at least *least* states of the database, in order, and that the last one is among them."""
    order = [had.get(cut, -1) for cut in cuts]
    assert -1 not in order, f"{order.count(-1)} of {len(order)} cuts are not states that the database had"
    assert order == sorted(order), "a later cut is an earlier state"
    assert order[-1] == max(had.values())
    assert len(set(order)) >= least


@pytest.mark.slow
@pytest.mark.usefixtures("workers_find_the_tests")
def test_every_cut_of_the_example_is_a_state_that_the_database_had(
    database: str, tmp_path: Path, kafka_broker: Kafka, topic_prefix: str
) -> None:
    brokers = kafka_broker.bootstrap_servers
    open_bank(database)
    with psycopg.connect(database, autocommit=True) as connection:
        record(connection)
        sink = f"kafka://{brokers}?topic_prefix={topic_prefix}&topic_partitions=2"
        with Feed(tmp_path, database, TABLES, sink=sink, threads=True) as feed:
            consumer = Consumer(brokers, topic_prefix, group="follower")
            with Bank(database):

                def await_cuts(what: str) -> None:
                    cuts = len(consumer.cuts) + 5
                    feed.until(f"cuts after {what}", lambda: consumer.has_cuts(cuts))

                feed.start()
                await_cuts("the start")
                add_partitions(brokers, f"{topic_prefix}accounts", 5)
                new = (f"{topic_prefix}accounts", 4)
                feed.until("rows of a new partition", lambda: consumer.has_rows_of(new))
                await_cuts("partitions were added")
                consumer.restart()
                await_cuts("the consumer was restarted")
                feed.kill_driver()
                feed.start()
                await_cuts("the changefeed was killed and repeats rows")
            target = str(clock(database))
            feed.until("the last transaction", lambda: consumer.has(target))
        had = states(connection)
    assert_true_to(had, consumer.cuts, least=10)
    late = Consumer(brokers, topic_prefix, group="late")
    eventually("the end of the topics", lambda: late.has(target))
    assert_true_to(had, late.cuts, least=3)


def test_the_example_fails_if_unread_rows_were_deleted(kafka_broker: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}accounts"
    brokers = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    producer = kafka.Producer(brokers)

    def write(*times: int) -> None:
        for time in times:
            updated = f"{time:019d}.0000000000"
            producer.produce(topic, key=b"[1]", value=json.dumps({"after": {}, "updated": updated}), partition=0)
            producer.produce(topic, value=json.dumps({"resolved": updated}), partition=0)
        producer.flush()

    admin = AdminClient(brokers)
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result()
    write(1)
    module = example()
    reader = module.ResolvedReader(kafka_broker.bootstrap_servers, [topic], group=topic)
    eventually("the first cut", lambda: reader.poll(0.1))
    reader.commit()
    write(2, 3)
    admin.delete_records([kafka.TopicPartition(topic, 0, 4)])[kafka.TopicPartition(topic, 0)].result()
    late = module.ResolvedReader(kafka_broker.bootstrap_servers, [topic], group=topic, after=reader.cut)
    with pytest.raises(kafka.KafkaException, match=r"(?i)offset"):
        eventually("a cut", lambda: late.poll(0.1))
