"""The source: what an application wrote to a journal, one line for each transaction."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from cdc_core import (
    Column,
    ColumnType,
    ConfigError,
    HistoryLostError,
    Kind,
    Mark,
    Op,
    Rangefeed,
    RangefeedContext,
    RetryableRangefeedError,
    RowBatch,
    ScanProgress,
    Slice,
    Span,
    StepLimit,
    TableName,
    TableSchema,
    TerminalRangefeedError,
    Timestamp,
    Token,
)

from cdc_rangefeed_template.journal import Journal

_ID = Column(name="id", type=ColumnType(kind=Kind.INT, source="integer", bits=64), nullable=False)
_N = Column(name="n", type=ColumnType(kind=Kind.INT, source="integer", bits=64), nullable=False)
_NOTE = Column(name="note", type=ColumnType(kind=Kind.STRING, source="text"))
Change = tuple[str, Op, int, int, Any, Any]  # table, op, updated, id, before, after


class TemplateRangefeed(Rangefeed):
    """A token is where a step ends: {"offset": bytes of the log, "clock": ns, "scan": [table, id] or None, "at": ns}.

    "scan" is how far the initial scan has come in the rows that there were at "at".
    """

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._journal = Journal(context.uri)
        self._names = {table: TableName("journal", "public", table.rpartition(".")[2]) for table in context.tables}

    def check(self) -> None:
        try:
            there = self._journal.tables(self._journal.tip()[0])
        except OSError as error:
            raise ConfigError(f"the journal '{self._journal.path}' cannot be read: {error.strerror}") from error
        for table in self.context.tables:
            if table not in there:
                raise ConfigError(f"the journal '{self._journal.path}' has no table '{table}'; create it first")

    def schemas(self) -> Sequence[TableSchema]:
        return [_schema(name) for name in self._names.values()]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        with _translated():
            size, now = self._journal.tip()
        if saved is None:
            scan = ["", 0] if self.context.initial_scan else None
            return {"offset": size, "clock": now, "scan": scan, "at": now}
        if saved["offset"] > size:
            raise HistoryLostError(f"the journal '{self._journal.path}' is shorter than it was; start the feed anew")
        return saved

    def now(self) -> Timestamp:
        with _translated():
            return Timestamp(self._journal.tip()[1] + 1)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        with _translated():
            return self._after_scan(start, limit) if start["scan"] else self._after_log(start, limit)

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        lower = Timestamp(start["at"]) if start["scan"] else Timestamp(start["clock"]).next()
        return [Slice(lower=lower, payload=[start, end])]

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        start, end = slice_.payload
        with _translated():
            changes = self._scanned(start, end) if start["scan"] else self._logged(start, end)
            yield from self._batches(changes)
        done = end["scan"] is None
        time = Timestamp(end["at"] if start["scan"] else end["clock"])
        for name in self._names.values():
            yield Mark(span=Span(name.full), timestamp=time, resolved=done)

    def release(self, token: Token) -> None:
        """The journal keeps all its history."""

    def scan_progress(self, token: Token) -> ScanProgress | None:
        if token["scan"] is None:
            return None
        done = sum(table < token["scan"][0] for table in self._names)
        return ScanProgress(done=done, total=len(self._names), unit="tables")

    def metrics(self) -> Mapping[str, float]:
        with _translated():
            return {"journal_bytes": float(self._journal.tip()[0])}

    def drop(self, saved: Token | None) -> None:
        """Nothing was created."""

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _after_scan(self, start: Token, limit: StepLimit) -> Token:
        size = rows = 0
        scan = start["scan"]
        for key, row in self._rows_to_scan(start):
            if rows >= limit.rows or size >= limit.bytes:
                return {**start, "scan": scan}
            rows, size, scan = rows + 1, size + len(str(row)), list(key)
        return {**start, "scan": None}

    def _after_log(self, start: Token, limit: StepLimit) -> Token:
        end, now = self._journal.tip()
        offset, clock, rows = start["offset"], start["clock"], 0
        for place, line, _ in self._journal.lines(offset, end):
            if rows >= limit.rows or offset - start["offset"] >= limit.bytes:
                return {**start, "offset": offset, "clock": clock}
            if line.get("drop") in self._names:
                raise TerminalRangefeedError(f"table '{line['drop']}' was dropped; take it out of the changefeed")
            offset, clock, rows = place, line["at"], rows + len(line.get("writes", ()))
        idle = offset == start["offset"] and now - start["clock"] < self.context.options.idle_interval * 1e9
        return start if idle else {**start, "offset": offset, "clock": max(clock, now)}

    def _rows_to_scan(self, start: Token) -> list[tuple[tuple[str, int], dict[str, Any]]]:
        rows = self._journal.rows(start["offset"])
        return sorted((key, row) for key, row in rows.items() if key[0] in self._names and key > tuple(start["scan"]))

    def _scanned(self, start: Token, end: Token) -> Iterator[tuple[int, Change]]:
        for (table, id_), row in self._rows_to_scan(start):
            if end["scan"] is None or (table, id_) <= tuple(end["scan"]):
                yield len(str(row)), (table, Op.SCAN, start["at"], id_, None, row)

    def _logged(self, start: Token, end: Token) -> Iterator[tuple[int, Change]]:
        for _, line, size in self._journal.lines(start["offset"], end["offset"]):
            for table, id_, before, after in line.get("writes", ()):
                if table in self._names:
                    op = Op.DELETE if after is None else Op.UPDATE if before else Op.INSERT
                    yield size // len(line["writes"]), (table, op, line["at"], id_, before, after)

    def _batches(self, changes: Iterator[tuple[int, Change]]) -> Iterator[RowBatch]:
        """Yield batches of one table each; those of a table stand in order."""
        waiting: dict[str, list[Change]] = {}
        size = 0
        for bytes_, change in changes:
            waiting.setdefault(change[0], []).append(change)
            size += bytes_
            if size >= self.context.options.batch_bytes:
                yield from (self._batch(*several) for several in waiting.items())
                waiting, size = {}, 0
        yield from (self._batch(*several) for several in waiting.items())

    def _batch(self, table: str, changes: Sequence[Change]) -> RowBatch:
        schema = _schema(self._names[table])
        _, ops, times, ids, befores, afters = zip(*changes, strict=True)
        wall = pa.array(times, pa.int64())
        return RowBatch.of(
            schema,
            op=pa.array(ops, pa.uint8()),
            updated=RowBatch.timestamps(wall, pa.array([0] * len(wall), pa.int32())),
            key=pa.array([{"id": id_} for id_ in ids], schema.key_type),
            after=pa.array(afters, schema.after_type),
            before=pa.array(befores, schema.after_type) if self.context.diff else None,
        )


def _schema(name: TableName) -> TableSchema:
    return TableSchema(name=name, version=1, columns=(_ID, _N, _NOTE), primary_key=("id",))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RetryableRangefeedError(f"the journal '{error.filename}' cannot be read: {error.strerror}") from error
