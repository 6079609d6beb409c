"""Topics that a query gives to rows, through the engine's own parts into Kafka: whatever crashes, marks reach them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import Message, read_topics
from cdc_testing.local_engine import LocalEngine

from cdc_core import Changefeed, Flushed, RowBatch, Sink, SliceInfo, SliceReader, SpanMark
from cdc_core.config.resolve import resolve
from cdc_core.delivery.replay import DeadLetterReader
from cdc_core.engine.replay import replay
from cdc_core.errors import BadRowError, OptionError, RetryableSinkError
from cdc_core.plugins.host import PluginHost
from cdc_core.step_planner import Slice

QUERY = "SELECT id, n, CAST(n AS STRING) AS cdc_topic FROM t"


class RoutingReader(SliceReader):
    """Gives each row the topic that the query would: `n…`, and what is in *topics* for some values of n."""

    def __init__(self, reader: SliceReader, topics: dict[int, str | None]) -> None:
        self._reader = reader
        self._topics = topics

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        for item in self._reader.read(slice_):
            if isinstance(item, RowBatch) and len(item):
                numbers = item.column("after").field("n").to_pylist()
                topics = pa.array([self._topics.get(n, f"n{n}") for n in numbers], pa.string())
                item = RowBatch(schema=item.schema, batch=item.batch.append_column("topic", topics))
            yield item

    def close(self) -> None:
        self._reader.close()


class CrashingSink(Sink):
    """Delivers everything, and dies before anyone hears of it as long as a file `crash` exists."""

    def __init__(self, sink: Sink, crash: Path) -> None:
        super().__init__(sink.context)
        self._sink = sink
        self._crash = crash

    def begin(self, slice_: SliceInfo) -> None:
        self._sink.begin(slice_)

    def admit(self, topic: str) -> str | None:
        return self._sink.admit(topic)

    def emit(self, rows: RowBatch) -> None:
        self._sink.emit(rows)

    def flush(self) -> Flushed:
        flushed = self._sink.flush()
        if self._crash.exists():
            raise RetryableSinkError("died after the rows were delivered")
        return flushed

    def close(self) -> None:
        self._sink.close()


class Rig:
    """An engine whose feed gives rows topics, and what arrives in Kafka."""

    def __init__(self, directory: Path, kafka: Kafka, prefix: str, **options: Any) -> None:
        self.db = SimulatedDatabase.create(directory / "db", seed=5)
        self.db.create_table("t")
        self.crash = directory / "crash"
        self.topics: dict[int, str | None] = {}
        self._address = kafka.bootstrap_servers
        self._prefix = prefix
        self.feed = resolve(
            Changefeed(
                name="t",
                source=self.db.uri,
                sink=f"kafka://{kafka.bootstrap_servers}?topic_prefix={prefix}",
                query=QUERY,
                options={"resolved": True, "min_checkpoint_frequency": 0, "idle_interval": 0, **options},
            ),
            PluginHost.load(),
        )
        self.directory = directory
        self.engine = LocalEngine(
            self.feed,
            directory,
            wrap_reader=lambda reader: RoutingReader(reader, self.topics),
            wrap_sink=lambda sink: CrashingSink(sink, self.crash),
        )

    def arrived(self, topic: str) -> list[Message]:
        return read_topics(self._address, [f"{self._prefix}{topic}"])

    def rows(self, topic: str) -> list[int]:
        return [json.loads(message.value or b"")["n"] for message in self.arrived(topic) if message.key is not None]

    def last_mark(self, topic: str) -> str:
        marks = [json.loads(message.value or b"") for message in self.arrived(topic) if message.key is None]
        found: str = marks[-1]["__crdb__"]["resolved"]
        return found


@pytest.fixture
def rig(tmp_path: Path, kafka_broker: Kafka, topic_prefix: str) -> Rig:
    return Rig(tmp_path, kafka_broker, topic_prefix)


def test_marks_reach_a_topic_whose_rows_no_later_attempt_reads_again(rig: Rig) -> None:
    rig.db.put("t", id=1, n=1)
    rig.engine.run()
    rig.crash.touch()
    with pytest.raises(RetryableSinkError, match="died after"):
        rig.engine.until(rig.db.now)
    assert rig.rows("n1") == [1]
    assert rig.engine.store.topics.of("t") == ["n1"]
    rig.crash.unlink()
    rig.db.put("t", id=1, n=2)  # the scan of the next run reads this instead
    rig.engine.run()
    rig.engine.until(rig.db.now)
    assert rig.rows("n2")[-1] == 2
    assert rig.last_mark("n1") == rig.last_mark("n2") == str(rig.engine.high_water)


def test_marks_reach_the_topics_of_earlier_runs_and_the_topic_of_no_table(rig: Rig) -> None:
    rig.db.put("t", id=1, n=1)
    rig.engine.run()
    rig.engine.until(rig.db.now)
    before = rig.last_mark("n1")
    rig.engine.run()
    rig.db.put("t", id=2, n=3)
    rig.engine.until(rig.db.now)
    assert rig.rows("n1") == [1]
    assert rig.rows("n3") == [3]
    assert before < rig.last_mark("n1") == rig.last_mark("n3")
    with pytest.raises(Exception, match="UNKNOWN_TOPIC"):
        rig.arrived("t")


def test_a_row_without_a_topic_ends_the_changefeed_with_a_sentence(rig: Rig) -> None:
    rig.topics[1] = None
    rig.db.put("t", id=1, n=1)
    rig.engine.run()
    told = r"with key \{'id': 1\}, updated [\d.]+ was refused by the query \(stage query\): its cdc_topic is null; for"
    with pytest.raises(BadRowError, match=told):
        rig.engine.until(rig.db.now)


def test_rows_whose_topic_is_refused_become_dead_letters_and_can_be_sent_again(
    tmp_path: Path, kafka_broker: Kafka, topic_prefix: str
) -> None:
    letters = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead", "create_kafka_topics": "off"}
    rig = Rig(tmp_path, kafka_broker, topic_prefix, **letters)
    rig.topics |= {1: "not allowed", 2: "missing", 3: "", 4: "x" * 250}
    for n in (1, 2, 3, 4):
        rig.db.put("t", id=n, n=n)
    rig.engine.run()
    rig.engine.until(rig.db.now)
    found = rig.engine.store.dead_letters.of("t")
    assert sorted((letter.key, letter.stage) for letter in found) == [
        ("[1]", "sink"),
        ("[2]", "sink"),
        ("[3]", "query"),
        ("[4]", "sink"),
    ]
    assert rig.engine.store.topics.of("t") == []
    create = dataclasses.replace(rig.feed, sink=_with(rig.feed.sink, create_kafka_topics="explicit"))
    state_dir = tmp_path / "replay"
    state_dir.mkdir()
    result, missing = replay(create, store=rig.engine.store, state_dir=state_dir, find=DeadLetterReader(create).find)
    assert (missing, len(result.sent), len(result.kept)) == (0, 1, 3)
    assert rig.rows("missing") == [2]
    assert rig.engine.store.topics.of("t") == ["missing"]
    rig.engine.run()
    rig.db.put("t", id=5, n=2)
    rig.engine.until(rig.db.now)
    assert rig.last_mark("missing") == str(rig.engine.high_water)


def test_a_topic_equal_to_that_of_the_dead_letters_makes_a_bad_row(
    tmp_path: Path, kafka_broker: Kafka, topic_prefix: str
) -> None:
    dead = f"kafka://{kafka_broker.bootstrap_servers}?topic_prefix={topic_prefix}"
    rig = Rig(tmp_path, kafka_broker, topic_prefix, on_error="dead_letter", dead_letter=dead)
    rig.topics[1] = "t_dead_letters"
    rig.db.put("t", id=1, n=1)
    rig.engine.run()
    rig.engine.until(rig.db.now)
    (letter,) = rig.engine.store.dead_letters.of("t")
    assert letter.error.endswith("t_dead_letters', which its cdc_topic names, is that of the dead letters")


@pytest.mark.parametrize(
    ("query", "options", "told"),
    [
        (QUERY, {"topic": "{table}"}, "option 'topic' has no effect, because its query gives each row a cdc_topic"),
        (QUERY, {"full_table_name": True}, "option 'full_table_name' has no effect, because its query gives"),
        ("SELECT id FROM t", {"max_topics": 5}, "option 'max_topics' has no effect, because no query gives rows"),
    ],
)
def test_options_about_topics_without_an_effect_are_refused(query: str, options: dict[str, Any], told: str) -> None:
    feed = Changefeed(name="t", source="simulated:///x", sink="kafka://localhost:9092", query=query, options=options)
    with pytest.raises(OptionError, match=told):
        resolve(feed, PluginHost.load())


def _with(component: Any, **values: Any) -> Any:
    return dataclasses.replace(component, values={**component.values, **values})
