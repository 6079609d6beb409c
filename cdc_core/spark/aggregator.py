"""The executor's turn: one slice, from the rangefeed's rows to a report that they are durable."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc_core.errors import ContractError, RetryableError, to_wire
from cdc_core.rangefeed import Mark, Rangefeed, Slice, Token
from cdc_core.rows import RowBatch
from cdc_core.sink import Sink, SliceInfo
from cdc_core.spark.config import MaskedError
from cdc_core.spark.packing import BEGIN, END, FAILED, note, pack, unpack
from cdc_core.spark.reports import SliceReport, mark_from_json, mark_to_json
from cdc_core.timestamp import Timestamp

__all__ = ["ReaderDiedError", "read_slice", "write_slice"]


class ReaderDiedError(MaskedError):
    """The rows of a slice ended without its end. Another attempt of the same task is all that it takes."""

    def __init__(self) -> None:
        error = RetryableError("the process that read a slice died before the slice's end; the step is repeated")
        super().__init__(f"{error} {to_wire(error)}")


def read_slice(
    rangefeed: Rangefeed, slice_: Slice, info: SliceInfo, *, slices: int, end: Token
) -> Iterator[pa.RecordBatch]:
    """Yield a slice in the packed layout. Only a slice that was read to its end gets its `end` row."""
    yield note(BEGIN, {"step": info.step, "index": info.index, "lower": str(info.lower)})
    marks: list[Mark] = []
    for item in rangefeed.read(slice_):
        if isinstance(item, RowBatch):
            yield from pack(item)
        else:
            marks.append(item)
    if not marks:
        raise ContractError(
            f"rangefeed {type(rangefeed).__name__} broke its contract: read() must yield a mark for each span"
        )
    yield note(END, {"slices": slices, "end": end, "marks": [mark_to_json(mark) for mark in marks]})


def write_slice(sink: Sink, batches: Iterable[pa.RecordBatch]) -> SliceReport:
    """Emit a slice's rows, flush, and return the report.

    A reader that dies makes *batches* end as if all were well. Therefore nothing is flushed before the slice's `end`
    row was seen; without it the slice is abandoned. Raises: ReaderDiedError then; MaskedError when the reader says that
    it failed; whatever the sink raises.
    """
    started = time.monotonic()
    info: SliceInfo | None = None
    end: dict[str, object] | None = None
    rows = 0
    for kind, value in unpack(batches):
        if isinstance(value, RowBatch):
            if info is None or end is not None:
                raise ContractError("engine: rows outside of a slice")
            rows += len(value)
            sink.emit(value)
        elif kind == BEGIN:
            info = SliceInfo(step=value["step"], index=value["index"], lower=Timestamp.parse(value["lower"]))
            sink.begin(info)
        elif kind == END:
            end = value
        elif kind == FAILED:
            raise MaskedError(value["error"])
    if info is None or end is None:
        raise ReaderDiedError
    return SliceReport(
        step=info.step,
        index=info.index,
        slices=end["slices"],  # type: ignore[arg-type]
        end=end["end"],  # type: ignore[arg-type]
        marks=tuple(mark_from_json(mark) for mark in end["marks"]),  # type: ignore[attr-defined]
        rows=rows,
        flushed=sink.flush(),
        seconds=time.monotonic() - started,
    )
