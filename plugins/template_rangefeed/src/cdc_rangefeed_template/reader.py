"""The executors' part: reads the rows of a slice."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from cdc_core import Op, RangefeedContext, RowBatch, Slice, SliceReader, Span, SpanMark, Timestamp, Token

from cdc_rangefeed_template.journal import Journal, schema_of, translated

Change = tuple[str, Op, int, int, Any, Any]  # table, op, updated, id, before, after


class TemplateReader(SliceReader):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._journal = Journal(context.uri)

    def local_directory(self) -> Path:
        return self._journal.path.parent

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        start, end = slice_.payload
        with translated():
            yield from self._batches(self._scanned(start, end) if start["scan"] else self._logged(start, end))
        for schema in map(schema_of, self.context.tables):
            timestamp, resolved = Timestamp(end["clock"]), end["scan"] is None
            yield SpanMark(span=Span(schema.name.full), timestamp=timestamp, resolved=resolved)

    def _scanned(self, start: Token, end: Token) -> Iterator[Change]:
        for (table, id_), row in self._journal.rows_to_scan(start, self.context.tables):
            if end["scan"] is None or (table, id_) <= tuple(end["scan"]):
                yield table, Op.SCAN, start["clock"], id_, None, row

    def _logged(self, start: Token, end: Token) -> Iterator[Change]:
        for _, line in self._journal.lines(start["offset"], end["offset"]):
            for table, id_, before, after in line.get("writes", ()):
                if table in self.context.tables:
                    op = Op.DELETE if after is None else Op.UPDATE if before else Op.INSERT
                    yield table, op, line["at"], id_, before, after

    def _batches(self, changes: Iterator[Change]) -> Iterator[RowBatch]:
        """Yield batches of about `batch_bytes`, each of one table. The changes of a table stay in order."""
        waiting: dict[str, list[Change]] = {}
        size = 0
        for change in changes:
            waiting.setdefault(change[0], []).append(change)
            size += len(str(change))
            if size >= self.context.options.batch_bytes:
                yield from (self._batch(table, found) for table, found in waiting.items())
                waiting, size = {}, 0
        yield from (self._batch(table, found) for table, found in waiting.items())

    def _batch(self, table: str, changes: Sequence[Change]) -> RowBatch:
        schema = schema_of(table)
        _, ops, times, ids, befores, afters = zip(*changes, strict=True)
        return RowBatch.of(
            schema,
            op=pa.array(ops, pa.uint8()),
            updated=RowBatch.timestamps(pa.array(times, pa.int64()), pa.array([0] * len(times), pa.int32())),
            key=pa.array([{"id": id_} for id_ in ids], schema.key_type),
            after=pa.array(afters, schema.after_type),
            before=pa.array(befores, schema.after_type) if self.context.diff else None,
        )
