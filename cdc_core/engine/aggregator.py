"""The executor's turn: one slice, from the rangefeed's rows to a report that they are durable."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from cdc_core.delivery.bad_rows import SliceBadRows, StopAtBadRow
from cdc_core.delivery.delivery import Delivery
from cdc_core.engine.attempt_config import MaskedError
from cdc_core.engine.packing import BEGIN, END, FAILED, IDLE, note, pack, unpack
from cdc_core.engine.reports import SliceReport, mark_from_json, mark_to_json
from cdc_core.errors import ContractError, RetryableError, to_wire
from cdc_core.rangefeed import Mark, Rangefeed, Slice, Token
from cdc_core.rows import RowBatch
from cdc_core.sink import Sink, SliceInfo
from cdc_core.telemetry.stages import ENCODE, SINK, Stages, waited_for
from cdc_core.timestamp import Timestamp

__all__ = ["ReaderDiedError", "read_slice", "write_slice"]


class ReaderDiedError(MaskedError):
    """The rows of a slice ended without its end. Another attempt of the same task is all that it takes."""

    def __init__(self) -> None:
        error = RetryableError("the process that read a slice died before the slice's end; the step is repeated")
        super().__init__(f"{error} {to_wire(error)}")


def read_slice(
    rangefeed: Rangefeed,
    slice_: Slice,
    info: SliceInfo,
    *,
    slices: int,
    end: Token,
    blocked: Sequence[tuple[str, str]] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield a slice in the packed layout. Only a slice that was read to its end gets its `end` row.

    *blocked* are the keys, as (full table name, key in JSON), whose rows must wait; the writer is told.

    Raises: ContractError, before the rows in question are passed on, for a row that comes too late: below the slice's
    lower bound it could be older than what has been resolved. Likewise for a row above its table's marks.
    """
    owner = f"rangefeed {type(rangefeed).__name__}"
    told = {"blocked": list(blocked)} if blocked else {}
    yield note(
        BEGIN,
        {"step": info.step, "index": info.index, "lower": str(info.lower), "planned_by": info.planned_by, **told},
    )
    marks: list[Mark] = []
    latest: dict[str, Timestamp] = {}
    for item in rangefeed.read(slice_):
        if isinstance(item, Mark):
            marks.append(item)
            continue
        _refuse_late_rows(owner, item, info.lower)
        table = item.schema.name.full
        latest[table] = max(latest.get(table, Timestamp()), item.latest())
        yield from pack(item)
    if not marks:
        raise ContractError(f"{owner} broke its contract: read() must yield a mark for each span")
    for table, timestamp in latest.items():
        reached = max((mark.timestamp for mark in marks if mark.span.table == table), default=Timestamp())
        if timestamp > reached:
            raise ContractError(
                f"{owner} broke its contract: a row of table {table} is from {timestamp}, above {reached} which the"
                " marks of the slice say was reached"
            )
    yield note(END, {"slices": slices, "end": end, "marks": [mark_to_json(mark) for mark in marks]})


def write_slice(
    sink: Sink,
    batches: Iterable[pa.RecordBatch],
    *,
    bad_rows: SliceBadRows | None = None,
    stages: Stages | None = None,
    attempt: int = 0,
) -> SliceReport | None:
    """Emit a slice's rows, flush, and return the report; None where there was no slice. *stages* are the task's.

    *attempt* counts from 0 how often the task was begun.

    A reader that dies makes *batches* end as if all were well. Therefore nothing counts before the slice's `end` row
    was seen; without it the slice is abandoned. What *bad_rows* put aside is durable before the report, without it the
    first bad row ends the slice. Raises: ReaderDiedError for such a slice; MaskedError when the reader says that it
    failed; BadRowError; whatever the sink raises about anything but rows.
    """
    if bad_rows is None:
        bad_rows = StopAtBadRow({ENCODE: "the encoder", SINK: f"sink {type(sink).__name__}"})
    delivery = Delivery(sink, bad_rows, owner=bad_rows.owners[SINK])
    started = time.monotonic()
    info: SliceInfo | None = None
    end: dict[str, object] | None = None
    rows = 0
    for kind, value in waited_for(unpack(batches)):
        if isinstance(value, RowBatch):
            if info is None or end is not None:
                raise ContractError("engine: rows outside of a slice")
            rows += len(value)
            delivery.emit(value)
        elif kind == BEGIN:
            info = SliceInfo(
                step=value["step"],
                index=value["index"],
                lower=Timestamp.parse(value["lower"]),
                planned_by=value.get("planned_by"),
                attempt=attempt,
            )
            bad_rows.begin(info, value.get("blocked", ()))
            delivery.begin(info)
        elif kind == END:
            end = value
        elif kind == IDLE:
            return None
        elif kind == FAILED:
            raise MaskedError(value["error"])
    if info is None or end is None:
        raise ReaderDiedError
    flushed = delivery.flush()
    return SliceReport(
        step=info.step,
        index=info.index,
        slices=end["slices"],  # type: ignore[arg-type]
        end=end["end"],  # type: ignore[arg-type]
        marks=tuple(mark_from_json(mark) for mark in end["marks"]),  # type: ignore[attr-defined]
        rows=rows,
        flushed=flushed,
        dead_letters=bad_rows.flush(),
        seconds=time.monotonic() - started,
        stages={} if stages is None else stages.seconds,
    )


def _refuse_late_rows(owner: str, rows: RowBatch, lower: Timestamp) -> None:
    late = rows.row_below(lower)
    if late is not None:
        updated = Timestamp(**rows.column("updated")[late].as_py())
        raise ContractError(
            f"{owner} broke its contract: the row of table {rows.schema.name} with key {rows.shown_key(late)} is from"
            f" {updated}, below {lower} where its slice begins; what is resolved may be past it"
        )
