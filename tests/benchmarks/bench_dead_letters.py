"""One row in a million that is not taken, written to the dead letters in a file, beside the same million without it.

First one process, one slice: packed batches to compressed JSON in memory, with `write_slice` as on an executor. With
and without the bad row take turns, several times. There is no destination behind the sink, so what a bad row costs is
seen in full. Counted is processor time, and the best round of each: the differences are smaller than what anything else
on the machine does to the clock. Rates by the clock are in the JSON file.

Then a whole changefeed, by the clock: a backlog of updates from PostgreSQL to Kafka, in turns with and without a row in
its middle that is too large for the topic.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.bench_encode import encoder
from benchmarks.context import Bench
from benchmarks.kafka_feed import KafkaFeed
from benchmarks.report import Figure, Target
from benchmarks.rows import SCHEMA, row_batch
from benchmarks.timing import take_turns
from benchmarks.workload import TABLE, connect, create_table, update_rows
from cdc_testing.written import written

from cdc_core import (
    Changefeed,
    EncodeError,
    Encoder,
    Flushed,
    RefusedRow,
    RefusedRowsError,
    RowBatch,
    Sink,
    SliceInfo,
    Timestamp,
)
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.bad_rows import DeadLetterRows
from cdc_core.delivery.row_json import key_json
from cdc_core.engine.packing import BEGIN, END, note, pack
from cdc_core.engine.slices import PlannedSlice, SliceEnd
from cdc_core.file_body import joined_values
from cdc_core.plugins.host import PluginHost

_BATCH_ROWS = 16_384
_BLOCKED_KEYS = 1000
_FEED_ROUNDS = 3
_MAX_CHANGES = 1_000_000
_KEYS = 100_000
_BAD_KEY = _KEYS + 1
_TOO_LARGE = 2_000_000
_HOW = {
    "name": "named by the sink",
    "encode": "refused by the encoder",
    "refuse": "refused by the sink, which does not say which row",
}


def run(bench: Bench) -> Iterator[Figure]:
    count = max(1, 2 * bench.sizes.part_rows // _BATCH_ROWS)
    whole = row_batch(count * _BATCH_ROWS)
    info = SliceInfo(step=0, index=0, lower=Timestamp())
    planned = PlannedSlice(slice=None, info=info, slices=1, end={})
    slice_ = [
        note(BEGIN, planned),
        *(packed for start in range(0, len(whole), _BATCH_ROWS) for packed in pack(whole.slice(start, _BATCH_ROWS))),
        note(END, SliceEnd(marks=[], read_s=0.0)),
    ]
    bad = whole.column("after").field("id")[len(whole) * 3 // 4].as_py()
    keys = whole.column("key")
    blocked = [(SCHEMA.name.full, key_json(SCHEMA, keys[number]).replace("[", "[-")) for number in range(_BLOCKED_KEYS)]
    begin = note(BEGIN, replace(planned, blocked=blocked))
    with bench.scratch("dead_letters") as directory:
        feed = _feed(directory, "continue")
        work: dict[str, Callable[[], object]] = {
            "none": lambda: _write(_Sink("", None), slice_, feed, bad=0),
            **{how: lambda how=how: _write(_Sink(how, bad), slice_, feed, bad=1) for how in _HOW},  # type: ignore[misc]
            "blocked": lambda: _write(_Sink("", None), [begin, *slice_[1:]], _feed(directory, "block_key"), bad=0),
        }
        turns = take_turns(work)
    by_clock = {name: [len(whole) / turn.elapsed_s for turn in taken] for name, taken in turns.items()}
    by_processor = {name: [len(whole) / turn.cpu_s for turn in taken] for name, taken in turns.items()}
    fastest = {name: max(values) for name, values in by_processor.items()}
    details = {"rows": len(whole), "by_clock": by_clock, "by_processor": by_processor}
    for how, shown in _HOW.items():
        yield Figure(
            name=f"part: a slice with one row {shown}",
            value=fastest[how],
            unit="rows/s",
            peer=fastest["none"],
            peer_name="without it",
            target=None if how == "refuse" else Target(per_peer=0.9),
            details=details,
        )
    yield Figure(
        name=f"part: a slice while {_BLOCKED_KEYS:,} other keys are blocked",
        value=fastest["blocked"],
        unit="rows/s",
        peer=fastest["none"],
        peer_name="without",
        target=Target(per_peer=0.9),
        details=details,
    )
    yield _whole_feed(bench)


def _whole_feed(bench: Bench) -> Figure:
    changes = min(bench.sizes.log_changes, _MAX_CHANGES)
    rates: dict[bool, list[float]] = {False: [], True: []}
    with bench.database("bench_dead_letters") as uri, bench.scratch("dead_letters_feed") as scratch:
        create_table(uri, _KEYS + 1000)
        options = {"on_error": "dead_letter", "dead_letter": f"file://{scratch.absolute()}/dead"}
        brokers = bench.broker.bootstrap_servers
        feed = KafkaFeed(scratch, uri, brokers=brokers, name="bench_dead_letters", options=options)
        feed.run_once()
        for _ in range(_FEED_ROUNDS):
            for bad in rates:
                update_rows(uri, changes // 2, keys=_KEYS)
                if bad:
                    with connect(uri) as connection:
                        connection.execute(
                            f"UPDATE {TABLE} SET note = repeat('x', %s) WHERE id = %s", (_TOO_LARGE, _BAD_KEY)
                        )
                update_rows(uri, changes // 2, keys=_KEYS)
                run = feed.run_once()
                assert run.rows == changes + bad, run.rows
                rates[bad].append(run.rate)
        bench.delete_topics(feed.topic.name)
        letters = list((scratch / "dead").rglob("*.ndjson"))
        assert len(letters) == _FEED_ROUNDS, letters
    return Figure(
        name="log to JSON in Kafka with one row that is too large",
        value=statistics.median(rates[True]),
        unit="rows/s",
        peer=statistics.median(rates[False]),
        peer_name="without it",
        target=Target(per_peer=0.9),
        details={"changes": changes, "rounds_with": rates[True], "rounds_without": rates[False]},
    )


def _write(sink: Sink, slice_: Sequence[pa.RecordBatch], feed: ResolvedChangefeed, *, bad: int) -> None:
    assert feed.dead_letter is not None
    letters = Parts(feed.dead_letter).open_sink()
    report = written(sink, slice_, bad_rows=DeadLetterRows(feed, open_sink=lambda: letters))
    letters.close()
    assert report is not None
    assert len(report.dead_letters) == bad
    assert report.flushed.messages == report.rows - bad


def _feed(directory: Path, order: str) -> ResolvedChangefeed:
    changefeed = Changefeed(
        name="bench",
        source="postgresql://user@host/bench",
        tables=("orders",),
        sink=f"file://{directory.absolute()}/files",
        options={
            "on_error": "dead_letter",
            "dead_letter": f"file://{directory.absolute()}/dead",
            "dead_letter_order": order,
        },
    )
    return resolve(changefeed, PluginHost.load()).for_attempt(feed_id="0" * 12, epoch=1)


class _Sink(Sink):
    """Encodes and compresses messages and drops them, and does not take the row with the id *bad*."""

    def __init__(self, how: str, bad: int | None) -> None:
        self._how = how
        self._bad = bad
        self._encoder: Encoder = encoder()
        self._messages = 0
        self._rows: list[RefusedRow] = []
        self._refused = False

    def emit(self, rows: RowBatch) -> None:
        messages = self._encoder.encode(rows, topic="orders")
        pa.compress(joined_values(messages.value), codec="zstd")
        found = -1
        if self._bad is not None:
            found = pc.index(rows.column("after").field("id"), self._bad).as_py()
        if found >= 0 and self._how == "encode":
            raise EncodeError("a value that has no JSON text", row=found)
        if found >= 0 and self._how == "name":
            self._rows.append(RefusedRow(index=self._messages + found, reason="message too large"))
        self._refused |= found >= 0 and self._how == "refuse"
        self._messages += len(rows)

    def flush(self) -> Flushed:
        messages, self._messages = self._messages, 0
        if self._refused:
            self._refused = False
            raise RefusedRowsError("400 Bad Request")
        refused, self._rows = tuple(self._rows), []
        return Flushed(messages=messages - len(refused), refused=refused)
