"""What an aggregator tells the coordinator about a finished slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_core.errors import ContractError, RetryableError, from_wire
from cdc_core.rangefeed import Mark, Token
from cdc_core.sink import Flushed
from cdc_core.span import Span
from cdc_core.store.progress import DeadLetter
from cdc_core.timestamp import Timestamp

__all__ = ["SliceReport", "complete_step", "joined_failures", "mark_from_json", "mark_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """One slice is durable at the sink. `end` is the token at which the whole step ends."""

    step: int
    index: int
    slices: int
    end: Token
    marks: tuple[Mark, ...]
    rows: int
    flushed: Flushed
    dead_letters: tuple[DeadLetter, ...] = ()
    """Rows that were put aside, durable as well. They count among `rows`."""
    seconds: float
    """Time that the slice took, reading included."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Where that time went: seconds by stage, see `cdc_core.telemetry.stages`."""


def complete_step(reports: Sequence[SliceReport | None]) -> Sequence[SliceReport]:
    """Return the reports of one step when all of its slices have reported.

    Raises: ContractError when a slice is missing or reports disagree, in which case nothing may be saved.
    """
    present = [report for report in reports if report is not None]
    if not present:
        raise ContractError("engine: a step ended without the report of any slice; its progress is not saved")
    first = present[0]
    missing = sorted(set(range(first.slices)) - {report.index for report in present})
    if missing or len(present) != first.slices:
        raise ContractError(
            f"engine: step {first.step} ended without the reports of slices {missing} of {first.slices};"
            " its progress is not saved"
        )
    if any((report.step, report.end) != (first.step, first.end) for report in present):
        raise ContractError(
            f"engine: the slices of step {first.step} report different steps; its progress is not saved"
        )
    return present


def joined_failures(failures: Sequence[str]) -> str:
    """Return the *failures* of a step's slices, texts of MaskedErrors, as one, led by that which decides what is next.

    That is the first that no retry can cure, else the one that asks for the longest wait.
    """

    def wait_s(text: str) -> float:
        error = from_wire(text)
        if isinstance(error, RetryableError):
            return error.retry_after_s or 0.0
        return 0.0 if error is None else float("inf")

    return "\n".join(sorted(failures, key=wait_s, reverse=True))


def mark_to_json(mark: Mark) -> list[str | bool | None]:
    span = mark.span
    return [
        span.table,
        span.start.hex(),
        None if span.end is None else span.end.hex(),
        str(mark.timestamp),
        mark.resolved,
    ]


def mark_from_json(value: Sequence[str | bool | None]) -> Mark:
    table, start, end, timestamp, resolved = value
    span = Span(str(table), bytes.fromhex(str(start)), None if end is None else bytes.fromhex(str(end)))
    return Mark(span=span, timestamp=Timestamp.parse(str(timestamp)), resolved=bool(resolved))
