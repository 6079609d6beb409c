"""What an aggregator reports to the coordinator about a finished slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_core.delivery.tracing import TracedChange
from cdc_core.errors import ContractError, RetryableError, from_wire
from cdc_core.rangefeed import Token
from cdc_core.sink import Flushed
from cdc_core.slice_reader import SpanMark
from cdc_core.store.values import DeadLetter

__all__ = ["SliceReport", "complete_step", "joined_failures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """One slice is durable at the sink. `end` is the token at which the whole step ends."""

    step: int
    index: int
    slices: int
    end: Token
    marks: tuple[SpanMark, ...]
    rows: int
    flushed: Flushed
    repeated: int = 0
    """How many of `rows` may have been delivered before: all when the slice was begun before, otherwise none."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """Rows that became dead letters, durable as well. They count among `rows`."""
    seconds: float
    """Time that the slice took, reading included."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Where that time went: seconds by stage, see `cdc_core.telemetry.stages`."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """What else the task counted: `Tally.saved`."""
    traced: tuple[TracedChange, ...] = ()
    """What became of the changes that someone traces."""


def complete_step(reports: Sequence[SliceReport | None]) -> Sequence[SliceReport]:
    """Return the reports of one step when all of its slices have reported.

    Raises: ContractError when a slice is missing or reports disagree; then nothing may be saved.
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
    """Return the *failures* of a step's slices, texts of MaskedErrors, as one. The decisive one comes first.

    That is the first that no retry can cure, otherwise one that someone repairs elsewhere, otherwise the one that asks
    for the longest wait.
    """

    def weight(text: str) -> tuple[int, float]:
        error = from_wire(text)
        if isinstance(error, RetryableError):
            return 0, error.retry_after_s or 0.0
        return (0 if error is None else 1 if error.repairable else 2), 0.0

    return "\n".join(sorted(failures, key=weight, reverse=True))
