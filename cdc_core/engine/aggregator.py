"""The aggregator: one slice on an executor, from the rangefeed's rows to a report that they are durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from cdc_core.delivery.bad_rows import SliceBadRows
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.delivery import Delivery
from cdc_core.delivery.routing import Routing
from cdc_core.delivery.tracing import FollowedChanges, WantedChanges
from cdc_core.engine.attempt_config import MaskedError
from cdc_core.engine.host_requirements import this_executor
from cdc_core.engine.key_parts import divided_by_key
from cdc_core.engine.packing import (
    BEGIN,
    END,
    FAILED,
    IDLE,
    REFUSED,
    TRACED,
    Arriving,
    note,
    notes,
    pack,
    unpack,
)
from cdc_core.engine.refused_rows import deliverable, refusal_for, refused_row
from cdc_core.engine.slices import PlannedSlice, SliceEnd, SliceReport
from cdc_core.engine.time_range import EVERYTHING, TimeRange
from cdc_core.errors import ContractError, RetryableError, to_wire
from cdc_core.options import counted
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.slice_reader import SliceReader, SpanMark
from cdc_core.store.traced_change import TracedChange
from cdc_core.telemetry.measuring import CommitLatency
from cdc_core.telemetry.stages import SOURCE, Stages, waited_for
from cdc_core.timestamp import Timestamp


class ReaderDiedError(MaskedError):
    """The rows of a slice ended without its end. Another attempt of the same task repairs it."""

    def __init__(self, rows: int = 0, table: TableName | None = None) -> None:
        where = "before its first row" if table is None else f"after {counted(rows, 'row')}, the last of table {table}"
        error = RetryableError(
            f"the process that read a slice died {where}; the step is repeated. If the kernel killed it to free "
            "memory, give the host more memory, or lower max_row_bytes",
            outage=False,
        )
        super().__init__(f"{error} {to_wire(error)}")


def read_slice(
    reader: SliceReader,
    planned: PlannedSlice,
    *,
    within: TimeRange = EVERYTHING,
    max_row_bytes: int | None = None,
    pack: Callable[[RowBatch], Iterator[pa.RecordBatch]] = pack,
    shown: Callable[[RowBatch], RowBatch] = lambda rows: rows,
    exchanged: bool = False,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the slice that was *planned* in the packed layout, with rows as *pack* gives them, each with its part.

    Each part is whole by itself, for a writer of its own. Only a slice that was read to its end gets its `end` rows.
    Only rows *within* this range are yielded, and no mark passes it. Of a row of more than *max_row_bytes*, the writer
    gets the key and the reason. *shown* returns rows as people may see them: columns of a table may be masked. The
    writer is told of traced rows before they come. Writers of a slice that is *exchanged* begin when it has been read.

    Raises: ContractError, before the rows in question are passed on, for a row below the slice's lower bound: it could
    be older than what is resolved. Likewise for a row above its table's marks. TerminalError: see `TimeRange.of_rows`.
    """
    owner = f"rangefeed {type(reader).__name__}"
    info, trace = planned.info, planned.trace
    assert planned.slice is not None
    started = time.monotonic()
    for part in range(planned.parts):
        for batch in notes(BEGIN, planned.for_writer(part)):
            yield part, batch
    within = within.beginning_at(info.lower)
    marks: list[SpanMark] = []
    latest: dict[str, Timestamp] = {}
    wanted = None if trace is None else WantedChanges(trace, step=info.step, position_of=reader.position_of)
    for item in reader.read(planned.slice):
        if isinstance(item, SpanMark):
            marks.append(item)
            continue
        if not isinstance(item, RowBatch):
            wrong = f"read() yielded {type(item).__name__}, neither a RowBatch nor a SpanMark"
            raise ContractError(f"{owner} broke its contract: {wrong}")
        _refuse_late_rows(owner, item, info.lower, shown)
        table = item.schema.name.full
        newest = item.latest()
        latest[table] = max(latest.get(table, Timestamp()), newest)
        kept = within.of_rows(item, latest=newest)
        for part, rows in divided_by_key(kept, planned.parts) if planned.parts > 1 else ((0, kept),):
            if wanted is not None and (found := wanted.found_in(rows, shown)):
                for batch in notes(TRACED, {"changes": [change.to_json() for change in found]}):
                    yield part, batch
            for piece, refused in deliverable(rows, max_row_bytes, unchecked_texts=reader.unchecked_texts):
                if refused is not None:
                    yield part, note(REFUSED, refusal_for(shown(piece), refused, stage=SOURCE))
                    continue
                for batch in pack(piece):
                    yield part, batch
    if not marks:
        raise ContractError(f"{owner} broke its contract: read() must yield a mark for each span")
    for table, timestamp in latest.items():
        reached = max((mark.timestamp for mark in marks if mark.span.table == table), default=Timestamp())
        if timestamp > reached:
            raise ContractError(
                f"{owner} broke its contract: a row of table {table} has updated {timestamp}, above {reached}, the"
                " greatest span mark of its slice"
            )
    end = SliceEnd(
        marks=[within.of_mark(mark) for mark in marks], read_s=time.monotonic() - started if exchanged else 0.0
    )
    for part in range(planned.parts):
        for batch in notes(END, end):
            yield part, batch


def write_slice(
    delivery: Delivery,
    bad_rows: SliceBadRows,
    batches: Iterable[Arriving],
    *,
    stages: Stages | None = None,
    task_attempt: int = 0,
    routing: Routing | None = None,
    write_traced: Callable[[Sequence[TracedChange]], object] = lambda _: None,
) -> SliceReport | None:
    """Emit a slice's rows, flush, and return the report; None where there was no slice. *stages* are the task's.

    *delivery* passes refused rows to *bad_rows*. *task_attempt* counts from 0 how often the task was begun. *routing*
    puts rows apart that have topics; without it there are none. *write_traced* gets what is known of traced changes
    before the slice is durable.

    A reader that dies makes *batches* end normally. Therefore nothing counts before the slice's `end` row was seen;
    without it the slice is abandoned. Dead letters in *bad_rows* are durable before the report.

    Raises: ReaderDiedError for a slice without its end; MaskedError when the reader says that it failed; BadRowError;
    whatever the sink raises about anything but rows.
    """
    latency = CommitLatency(delivery.tally)
    started = time.monotonic()
    planned: PlannedSlice | None = None
    end: SliceEnd | None = None
    rows, table = 0, None
    followed: FollowedChanges | None = None
    for kind, value in waited_for(unpack(batches)):
        if isinstance(value, RowBatch):
            _require_inside(planned, end)
            rows, table = rows + len(value), value.schema.name
            for part in (value,) if routing is None else routing.parted(value):
                if isinstance(part, BadRow):
                    bad_rows.add(part)
                else:
                    delivery.emit(part)
                    latency.emitted(part)
                    if followed is not None:
                        followed.reached("emitted", part)
                del part
            del value  # a large one would stay while the next one arrives
        elif isinstance(value, BadRow):
            _require_inside(planned, end)
            rows += 1
            bad_rows.add(value)
        elif kind == BEGIN:
            planned = replace(value, info=replace(value.info, task_attempt=task_attempt))
            bad_rows.begin(planned.info, planned.blocked)
            delivery.begin(planned.info)
        elif kind == END:
            end = value
        elif kind == REFUSED:
            _require_inside(planned, end)
            rows += 1
            bad_rows.add(refused_row(value))
        elif kind == TRACED:
            followed = followed or FollowedChanges()
            followed.add(map(TracedChange.from_json, value["changes"]))
            if stages is not None:
                stages.trace = followed
            write_traced(followed.so_far())
        elif kind == IDLE:
            return None
        elif kind == FAILED:
            raise MaskedError(value["error"])
    if planned is None or end is None:
        raise ReaderDiedError(rows, table)
    if followed is not None:
        write_traced(followed.so_far())
    flushed = delivery.flush()
    latency.flushed()
    dead_letters = bad_rows.flush()
    executor = this_executor()
    seconds = {} if stages is None else stages.seconds
    if end.read_s:
        seconds[SOURCE] = seconds.get(SOURCE, 0.0) + end.read_s / planned.parts  # the reports add up
    return SliceReport(
        planned=replace(planned, blocked=()),
        marks=tuple(end.marks),
        rows=rows,
        repeated=rows if planned.again or task_attempt else 0,
        flushed=flushed,
        dead_letters=dead_letters,
        seconds=time.monotonic() - started + end.read_s,
        stages=seconds,
        host=executor.host if executor.id else "",
        counted=delivery.tally.saved(),
        traced=() if followed is None else followed.flushed(dead_letters),
    )


def _require_inside(planned: PlannedSlice | None, end: SliceEnd | None) -> None:
    if planned is None or end is not None:
        raise ContractError("engine: rows outside of a slice")


def _refuse_late_rows(owner: str, rows: RowBatch, lower: Timestamp, shown: Callable[[RowBatch], RowBatch]) -> None:
    late = rows.row_below(lower)
    if late is not None:
        updated = Timestamp(**rows.column("updated")[late].as_py())
        key = shown(rows.slice(late, 1)).shown_key(0)
        raise ContractError(
            f"{owner} broke its contract: the row of table {rows.schema.name} with key {key} has"
            f" updated {updated}, below {lower}, where its slice begins; a later timestamp may already be resolved"
        )
