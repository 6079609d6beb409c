"""A topic is one of the changefeed's, durably, before its first row may be delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import TABLE
from cdc_testing.stored import DEFINITION

from cdc_core import Flushed, RowBatch, Sink
from cdc_core.config.parts import Parts
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.routing import Routing, TopicAdmission
from cdc_core.engine.fencing import FencedSink
from cdc_core.errors import FencedError, RetryableSinkError, TerminalError
from cdc_core.rows import Op
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.topics import Topics

Events = list[tuple[str, Any]]


class RecordingSink(Sink):
    """Notes what it is asked, and which topics the store had then."""

    def __init__(self, events: Events, saved: Callable[[], Sequence[str]]) -> None:
        self.context: Any = None
        self._events = events
        self._saved = saved

    def admit(self, topic: str) -> str | None:
        self._events.append(("admit", topic))
        if topic.startswith("busy"):
            raise RetryableSinkError("the broker is busy")
        return "is refused" if topic.startswith("no") else None

    def emit(self, rows: RowBatch) -> None:
        assert rows.topic in self._saved(), "a row was delivered before its topic was saved"
        self._events.append(("emit", rows.topic))

    def flush(self) -> Flushed:
        return Flushed()


class CountingTopics(Topics):
    calls: list[str]

    def of(self, name: str) -> Sequence[str]:
        self.calls.append("topics")
        return super().of(name)

    def add(self, name: str, epoch: int, topic: str, *, most: int) -> Sequence[str]:
        self.calls.append(f"add {topic}")
        return super().add(name, epoch, topic, most=most)


class CountingStore(ProgressStore):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.topics: CountingTopics = CountingTopics(self._database)
        self.calls = self.topics.calls = []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    store = CountingStore(store_url(tmp_path))
    store.changefeeds.register("orders", DEFINITION)
    store.changefeeds.begin_attempt("orders")
    yield store
    store.close()


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def saved(store: CountingStore) -> Callable[[], Sequence[str]]:
    other = ProgressStore(store.url)
    return lambda: other.topics.of("orders")


@pytest.fixture
def sink(events: Events, saved: Callable[[], Sequence[str]]) -> RecordingSink:
    return RecordingSink(events, saved)


@pytest.fixture
def admission(store: CountingStore) -> TopicAdmission:
    return TopicAdmission(store, name="orders", epoch=1, most=3)


def deliver(admission: TopicAdmission, sink: Sink, topics: Sequence[str]) -> list[BadRow]:
    """Emit a batch of rows with *topics*; return the bad rows."""
    ids = pa.array(range(len(topics)), pa.int64())
    batch = RowBatch.of(
        TABLE,
        op=pa.array([Op.UPDATE] * len(topics), pa.uint8()),
        updated=RowBatch.timestamps(ids, pa.array([0] * len(topics), pa.int32())),
        key=RowBatch.struct(TABLE.key_type, [ids]),
        after=RowBatch.struct(TABLE.after_type, [ids, ids]),
        topic=pa.array(topics, pa.string()),
    )
    bad = []
    for part in Routing(partial(admission.admit, sink=sink, fenced=sink)).parted(batch):
        if isinstance(part, BadRow):
            bad.append(part)
        else:
            sink.emit(part)
    return bad


def test_a_topic_is_saved_before_its_first_row_and_costs_one_call(
    admission: TopicAdmission, sink: RecordingSink, store: CountingStore, events: Events
) -> None:
    for _ in range(3):
        assert deliver(admission, sink, ["a", "b", "a"]) == []
    assert [event for event in events if event[0] == "admit"] == [("admit", "a"), ("admit", "b")]
    assert store.calls == ["topics", "add a", "add b"]
    assert store.topics.of("orders") == ["a", "b"]


def test_another_process_knows_the_topics_that_were_saved(
    admission: TopicAdmission, sink: RecordingSink, store: CountingStore, saved: Callable[[], Sequence[str]]
) -> None:
    deliver(admission, sink, ["a"])
    later: Events = []
    store.calls.clear()
    deliver(TopicAdmission(store, name="orders", epoch=1, most=3), RecordingSink(later, saved), ["a"])
    assert later == [("admit", "a"), ("emit", "a")]
    assert store.calls == ["topics"]


def test_a_sink_that_is_opened_anew_admits_its_topics_again(
    admission: TopicAdmission, sink: RecordingSink, saved: Callable[[], Sequence[str]]
) -> None:
    deliver(admission, sink, ["a"])
    later: Events = []
    deliver(admission, RecordingSink(later, saved), ["a"])
    assert later == [("admit", "a"), ("emit", "a")]


def test_a_topic_whose_refusal_was_cured_is_admitted_after_a_while(
    sink: RecordingSink, store: CountingStore, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    admission = TopicAdmission(store, name="orders", epoch=1, most=3, clock=lambda: now[0])
    assert len(deliver(admission, sink, ["no"])) == 1
    monkeypatch.setattr(RecordingSink, "admit", lambda _, topic: events.append(("cured", topic)))
    for seconds, bad in ((29.0, 1), (2.0, 0)):
        now[0] += seconds
        assert len(deliver(admission, sink, ["no"])) == bad
    assert events == [("admit", "no"), ("cured", "no"), ("emit", "no")]
    assert store.topics.of("orders") == ["no"]


def test_a_refusal_that_lasts_is_asked_for_again_only_after_a_while(
    sink: RecordingSink, store: CountingStore, events: Events
) -> None:
    now = [0.0]
    admission = TopicAdmission(store, name="orders", epoch=1, most=3, clock=lambda: now[0])
    for _ in range(7):
        assert len(deliver(admission, sink, ["no"])) == 1
        now[0] += 10.0
    assert events == [("admit", "no")] * 3
    assert store.topics.of("orders") == []


def test_a_refused_topic_is_asked_for_once_and_never_saved(
    admission: TopicAdmission, sink: RecordingSink, store: CountingStore, events: Events
) -> None:
    for _ in range(2):
        (bad,) = deliver(admission, sink, ["no"])
        assert (bad.stage, bad.reason) == ("sink", "is refused")
    assert events == [("admit", "no")]
    assert store.topics.of("orders") == []


def test_passing_trouble_is_raised_each_time_and_leaves_no_trace(
    admission: TopicAdmission, sink: RecordingSink, store: CountingStore, events: Events
) -> None:
    for _ in range(2):
        with pytest.raises(RetryableSinkError, match="busy"):
            deliver(admission, sink, ["busy"])
    assert events == [("admit", "busy"), ("admit", "busy")]
    assert store.topics.of("orders") == []


def test_a_topic_too_many_ends_the_changefeed_before_the_sink_creates_it(
    admission: TopicAdmission, sink: RecordingSink, events: Events
) -> None:
    deliver(admission, sink, ["a", "b", "c"])
    with pytest.raises(TerminalError, match="the maximum that max_topics allows; raise max_topics"):
        deliver(admission, sink, ["d"])
    assert ("admit", "d") not in events


def test_an_attempt_that_was_overtaken_delivers_no_row_to_a_new_topic(
    admission: TopicAdmission, sink: RecordingSink, store: CountingStore, events: Events
) -> None:
    store.changefeeds.begin_attempt("orders")
    with pytest.raises(FencedError):
        deliver(admission, sink, ["a"])
    assert [kind for kind, _ in events] == ["admit"]
    fenced = FencedSink(
        Parts(counter_feed(Path("/nowhere"))).open_sink(), lambda: store.changefeeds.require_newest("orders", 1)
    )
    with pytest.raises(FencedError):
        fenced.admit("a")
