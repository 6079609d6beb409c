"""A rangefeed and a sink that do exactly what a test says, for tests of the engine itself.

The counter counts: key `n % keys` gets value n, one number a nanosecond, `rows_per_step` numbers a step in
`slices` slices (by key). The journal appends what happens to it to a file, one JSON array an event. Both misbehave when
a file of a certain name exists in the control directory (see `Script`), so that a test can give orders to processes
that it does not hold.
"""

from __future__ import annotations

import builtins
import fcntl
import json
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core import (
    Column,
    ColumnType,
    ConfigError,
    Destination,
    EncodeError,
    Encoder,
    EncoderRegistration,
    Flushed,
    Kind,
    MessageBatch,
    Move,
    Op,
    Rangefeed,
    RangefeedContext,
    RangefeedRegistration,
    RefusedRow,
    RefusedRowsError,
    ResolvedSink,
    RowBatch,
    Sink,
    SinkContext,
    SinkRegistration,
    Slice,
    SliceInfo,
    SliceReader,
    SourceHistory,
    Span,
    SpanMark,
    StepLimit,
    StepPlanner,
    TableName,
    TableSchema,
    Timestamp,
    Token,
    option,
)
from cdc_core import errors as cdc_errors

TABLE = TableSchema(
    name=TableName("db", "public", "counter"),
    version=1,
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64)),
        Column(name="n", type=ColumnType(kind=Kind.INT, source="bigint", bits=64)),
    ),
    primary_key=("id",),
)


class ThreadDied(SystemExit):
    """The thread ends that stands for a process which is killed."""


class Script:
    """Strings that a test pulls: files in *directory*, each obeyed once (and removed) or as long as it is there."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def order(self, name: str, text: str = "", *, times: int = 1) -> None:
        """Have *text* obeyed, *times* times one after the other."""
        for later in range(1, times):
            (self.directory / f"{name}.later.{later}").write_text(text)
        unfinished = self.directory / f"{name}.given"
        unfinished.write_text(text)
        unfinished.rename(self.directory / name)  # whoever takes it finds all of it

    def once(self, name: str) -> str | None:
        """Return the text of order *name* and consume it, or None; only one process gets it."""
        path = self.directory / name
        taken = path.with_name(f"{name}.taken.{os.getpid()}")
        try:
            path.rename(taken)
        except FileNotFoundError:
            return None
        text = taken.read_text()
        taken.unlink()
        for later in sorted(self.directory.glob(f"{name}.later.*"))[:1]:
            later.rename(path)
        return text

    def pending(self, name: str) -> bool:
        return (self.directory / name).exists()

    def raise_once(self, name: str) -> None:
        """Raise the error that order *name* names, as `Class message`; `kill` kills this process, `die` this thread.

        A line below the message is its cause's message; ` retry_after_s=` or ` repairable` may end the message.
        """
        text = self.once(name)
        if text is None:
            return
        if text == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "die":
            raise ThreadDied("a thread died")
        kind, _, rest = text.partition(" ")
        message, _, cause = rest.partition("\n")
        message, _, wait_s = message.partition(" retry_after_s=")
        more: dict[str, Any] = {"retry_after_s": float(wait_s)} if wait_s else {}
        if message.endswith(" repairable"):
            message, more = message.removesuffix(" repairable"), {"repairable": True}
        cls = getattr(cdc_errors, kind, None) or getattr(builtins, kind)
        raise cls(message, **more) from (ConnectionError(cause) if cause else None)

    def hold(self, name: str) -> None:
        """Block while order *name* is pending; say so by a file `NAME.held` as long as that lasts."""
        if not self.pending(name):
            return
        held = self.directory / f"{name}.held"
        held.touch()
        while self.pending(name):
            threading.Event().wait(0.01)
        held.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOptions:
    control: str = option(doc="Directory of the test's orders.")
    rows_per_step: int = option(1000, doc="Numbers a step.")
    total: int = option(10_000, doc="Numbers there are.")
    keys: int = option(50, doc="Distinct keys.")
    slices: int = option(2, doc="Slices a step; -1 for as many as can be read at the same time.")
    batch_rows: int = option(100, doc="Rows a batch.")


class CounterRangefeed(Rangefeed):
    """Orders, here and in the other parts: `check`, `start`, `advance`, `read`, `read-late` (before the last of several
    batches of a slice), `release` and `drop` raise; `hold-read` blocks reads while it is there.
    """

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.options: CounterOptions = context.options
        self.script = Script(self.options.control)

    def check(self) -> None:
        self.script.raise_once("check")

    def schemas(self) -> Sequence[TableSchema]:
        return [TABLE]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        self.script.raise_once("start")
        return {"n": 0} if saved is None else saved

    def move(self, saved: Token, to: str | Token) -> Move:
        self.script.raise_once("move")
        n = self.options.total if to == "now" else to.get("n") if isinstance(to, dict) else None
        if isinstance(to, str) and Timestamp.is_text(to):
            n = Timestamp.parse(to).wall
        if n is None:
            raise ConfigError(f"'{to}' is no number")
        return Move(token={"n": n}, before=str(saved["n"]), after=str(n), forward=n > saved["n"], back=n < saved["n"])

    def drop(self, saved: Token | None) -> None:
        self.script.raise_once("drop")
        journal(self.options.control, ["drop"])


class CounterPlanner(StepPlanner):
    """Plans the next numbers."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.options: CounterOptions = context.options
        self.script = Script(self.options.control)

    def now(self) -> Timestamp:
        return Timestamp(self.options.total + 1)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        self.script.raise_once("advance")
        return {"n": min(start["n"] + min(self.options.rows_per_step, limit.rows), self.options.total + 1)}

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        count = self.context.parallelism if self.options.slices < 0 else self.options.slices
        return [Slice(lower=after.next(), payload=(start["n"], end["n"], index, count)) for index in range(count)]

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        return self.slices(start, end, after=after)


class CounterReader(SliceReader):
    """Reads numbers."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.options: CounterOptions = context.options
        self.script = Script(self.options.control)

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        first, last, index, count = slice_.payload
        numbers = [
            n for n in range(first + 1, last + 1) if n % self.options.keys % count == index and n <= self.options.total
        ]
        for offset in range(0, len(numbers), self.options.batch_rows):
            self.script.raise_once("read")
            if offset + self.options.batch_rows >= len(numbers) > self.options.batch_rows:
                self.script.raise_once("read-late")
            self.script.hold("hold-read")
            yield self._rows(numbers[offset : offset + self.options.batch_rows])
        yield SpanMark(span=Span(TABLE.name.full), timestamp=Timestamp(last), resolved=True)

    def _rows(self, numbers: list[int]) -> RowBatch:
        ids = pa.array([n % self.options.keys for n in numbers], pa.int64())
        return RowBatch.of(
            TABLE,
            op=pa.array([Op.UPDATE] * len(numbers), pa.uint8()),
            updated=RowBatch.timestamps(pa.array(numbers, pa.int64()), pa.array([0] * len(numbers), pa.int32())),
            key=RowBatch.struct(TABLE.key_type, [ids]),
            after=RowBatch.struct(TABLE.after_type, [ids, pa.array(numbers, pa.int64())]),
        )


class CounterHistory(SourceHistory):
    """Notes in the journal what may be forgotten. The file `notice-of-the-source` has its notice, and
    `retained-of-the-source` how much is retained.
    """

    def release(self, token: Token) -> None:
        control = self.context.options.control
        Script(control).raise_once("release")
        journal(control, ["release", token["n"]])

    def metrics(self) -> Mapping[str, float]:
        script = Script(self.context.options.control)
        script.hold("hold-metrics")
        script.raise_once("metrics")
        path = script.directory / "retained-of-the-source"
        return {"retained_bytes": float(path.read_text()) if path.exists() else 7.0}

    def notice(self) -> str | None:
        path = Path(self.context.options.control) / "notice-of-the-source"
        return path.read_text() if path.exists() else None


COUNTER = RangefeedRegistration(
    name="counter",
    schemes=("counter",),
    rangefeed=f"{__name__}:CounterRangefeed",
    planner=f"{__name__}:CounterPlanner",
    reader=f"{__name__}:CounterReader",
    history=f"{__name__}:CounterHistory",
    options=f"{__name__}:CounterOptions",
    repeats_steps=True,
    summary="Counts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    pass


class PlainEncoder(Encoder):
    """Values are the text of `after`."""

    file_extension = ".txt"

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        values = pa.array([str(value).encode() for value in rows.column("after").to_pylist()], pa.binary())
        return MessageBatch(topic=topic, key=values, value=values, updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return str(timestamp).encode()


PLAIN = EncoderRegistration(
    name="plain",
    encoder=f"{__name__}:PlainEncoder",
    options=f"{__name__}:NoOptions",
    envelopes=frozenset({"wrapped"}),
    outputs=frozenset({"messages", "files"}),
    summary="Plain text",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    control: str = option(doc="Directory of the test's orders and of the journal.")


class JournalDestination(Destination):
    """Orders: `sink-check` and `sink-prepare` raise. The file `places` has the answer of `identities`."""

    def check(self) -> None:
        Script(self.context.options.control).raise_once("sink-check")

    def prepare(self) -> None:
        Script(self.context.options.control).raise_once("sink-prepare")

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:
        told = Path(self.context.options.control, "places")
        return dict(json.loads(told.read_text())) if told.exists() else super().identities(topics)


class JournalSink(Sink):
    """Writes `["rows", epoch, step, index, [[id, n], …]]` and the like to the file `journal`.

    Orders: `emit`, `flush`, `before-report` (after the flush) raise; `hold-emit` blocks. `bad-rows` holds JSON, {"how":
    encode | name | refuse, "rows": [n, …]}: as long as it is there, these rows are refused, in one of the three ways.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.options: JournalOptions = context.options
        self.script = Script(self.options.control)
        self._slice: SliceInfo | None = None
        self._buffer: list[list[int]] = []

    def begin(self, slice_: SliceInfo) -> None:
        if self._slice is None:
            journal(self.options.control, ["open", self.context.epoch, os.getpid()])
        self._slice, self._buffer = slice_, []

    def emit(self, rows: RowBatch) -> None:
        self.script.raise_once("emit")
        self.script.hold("hold-emit")
        if self.script.pending("repeat-emit"):
            with self.context.repeating((self.script.directory / "repeat-emit").read_text(), next_attempt_s=60.0):
                self.script.hold("repeat-emit")
        found = [[row["id"], row["n"]] for row in rows.column("after").to_pylist()]
        how, bad = self._bad_rows()
        if how == "encode" and (first := next((n for _, n in found if n in bad), None)):
            raise EncodeError(f"there is no text for {first}")
        self._buffer.extend(found)

    def flush(self) -> Flushed:
        self.script.raise_once("flush")
        assert self._slice is not None
        how, bad = self._bad_rows()
        refused = tuple(
            RefusedRow(index=index, reason=f"{n} is refused") for index, (_, n) in enumerate(self._buffer) if n in bad
        )
        rows, self._buffer = self._buffer, []
        if refused and how == "refuse":
            raise RefusedRowsError("400 Bad Request")
        if how == "name":
            rows = [entry for entry in rows if entry[1] not in bad]
        journal(self.options.control, ["rows", self.context.epoch, self._slice.step, self._slice.index, rows])
        self.script.raise_once("before-report")
        return Flushed(messages=len(rows), bytes=0, files=1, refused=refused if how == "name" else ())

    def _bad_rows(self) -> tuple[str, frozenset[int]]:
        try:
            order = json.loads((self.script.directory / "bad-rows").read_text())
        except FileNotFoundError:
            return "", frozenset()
        return order["how"], frozenset(order["rows"])


class JournalResolvedSink(ResolvedSink):
    """Writes `["resolved", epoch, timestamp]`. The order `resolved` raises."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        control = self.context.options.control
        Script(control).raise_once("resolved")
        journal(control, ["resolved", self.context.epoch, timestamp.wall])


JOURNAL = SinkRegistration(
    name="journal",
    schemes=("journal",),
    sink=f"{__name__}:JournalSink",
    resolved_sink=f"{__name__}:JournalResolvedSink",
    destination=f"{__name__}:JournalDestination",
    options=f"{__name__}:JournalOptions",
    output="messages",
    summary="A file of events",
)


def journal(control: str, event: list[Any]) -> None:
    """Append *event* to the journal in directory *control*; safe with several processes."""
    with Path(control, "journal").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(event) + "\n")


def read_journal(control: str | Path) -> list[list[Any]]:
    """The events whose lines are complete: a writer may be in the middle of one."""
    path = Path(control, "journal")
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    return [json.loads(line) for line in whole.splitlines()]
