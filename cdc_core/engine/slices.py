"""A slice of a step on its way through the processes of an attempt: as it is planned, and as it is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from cdc_core.delivery.tracing import StepTrace
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.errors import ContractError, RetryableError, from_wire
from cdc_core.locality import Locality
from cdc_core.rangefeed_values import Token
from cdc_core.sink import Flushed, SliceInfo
from cdc_core.slice_reader import SpanMark
from cdc_core.step_planner import Slice
from cdc_core.store.traced_change import TracedChange
from cdc_core.store.values import DeadLetter

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSlice:
    """One slice of a step, from the planner to the report about it. Picklable."""

    slice: Slice | None
    """None where there is nothing to do."""
    info: SliceInfo
    slices: int
    """How many slices the step has for sinks, which know each part of a slice as one."""
    end: Token
    """The token at which the whole step ends."""
    blocked: Sequence[tuple[str, str]] = ()
    """Keys, as (full table name, key in JSON), whose rows must wait."""
    again: bool = False
    """Whether an earlier attempt began the step, and may have delivered some of its rows."""
    trace: StepTrace | None = None
    """Which changes are traced, None for none."""
    parts: int = 1
    """Into how many parts its rows are divided by key, the same number for all slices of a step. `info` is that of the
    first part, which the others follow by their index; for a writer, that of its part."""

    def for_writer(self, part: int) -> Self:
        """Return what the writer of *part* gets: without what only the reader understands, as it loads no rangefeed."""
        slice_ = None if self.slice is None else replace(self.slice, payload=None)
        return replace(self, slice=slice_, info=replace(self.info, index=self.info.index + part))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceEnd:
    """What the writers of a slice learn at its end."""

    marks: Sequence[SpanMark]
    read_s: float
    """How long it was read before they began; 0 if they began with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """The slice that was `planned` is durable at the sink."""

    planned: PlannedSlice
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
    host: str = ""
    """Where it was delivered, as Spark names the executor's host; empty in the driver's process."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """What else the task counted: `Tally.saved`."""
    traced: tuple[TracedChange, ...] = ()
    """What became of the changes that someone traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """What became of a task's slices, on its way to the coordinator: their reports, or the text of a MaskedError.

    Raising the error would cost one of several attempts at the task, repeated at once. As a message it fails the step,
    and the driver waits as long as the error asks for. With `idle` there was nothing to do.
    """

    reports: tuple[SliceReport, ...] = ()
    failure: str | None = None
    idle: bool = False


def complete_step(reports: Sequence[SliceReport | None]) -> Sequence[SliceReport]:
    """Return the reports of one step when all of its slices have reported.

    Raises: ContractError when a slice is missing or reports disagree; then nothing may be saved.
    """
    present = [report for report in reports if report is not None]
    if not present:
        raise ContractError("engine: a step ended without a report from any slice; its progress is not saved")
    first = present[0].planned
    missing = sorted(set(range(first.slices)) - {report.planned.info.index for report in present})
    if missing or len(present) != first.slices:
        raise ContractError(
            f"engine: step {first.info.step} ended without reports from slices {missing} of {first.slices};"
            " its progress is not saved"
        )
    if any((each.planned.info.step, each.planned.end) != (first.info.step, first.end) for each in present):
        raise ContractError(
            f"engine: the slices of step {first.info.step} report different steps; its progress is not saved"
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


_MAX_CLAIMED = 64
"""How many slices a task may choose from."""


def offers(config: AttemptConfig, planned: Sequence[PlannedSlice]) -> list[tuple[PlannedSlice, ...]]:
    """Return for each task the slices from which it takes one: its own alone where there is nothing to choose.

    Spark gives no say in which executor gets which task. So a task of a step is not a slice but a choice of slices: it
    claims one of them in the store, for good, so that another attempt of the task reads the same. The slices of a step
    and their numbers do not change by this, and the bound on the choice keeps tasks small.

    There is something where the source keeps replicas, the slices are at different places, and not all tasks run on the
    driver's host. A task chooses among the slices of as many tasks, so that each gets one.
    """
    places = {each.slice.locality for each in planned if each.slice is not None}
    chooses = config.feed.rangefeed.registration.replicas and config.runs_on_other_hosts and len(places) > 1
    size = _MAX_CLAIMED if chooses else 1
    firsts = (task - task % size for task in range(len(planned)))
    return [tuple(planned[first : first + size]) for first in firsts]


def claim(
    store: ProgressStore, config: AttemptConfig, task: int, offered: Sequence[PlannedSlice], here: Locality
) -> PlannedSlice:
    """Return the slice that *task*, on an executor at *here*, reads. Raises: RetryableError.

    The nearest one that no other task has; of equally near ones first its own, so that tasks do not meet.
    """
    step, own = offered[0].info.step, task - offered[0].info.index // offered[0].parts

    def distance(index: int) -> tuple[int, int]:
        slice_ = offered[index].slice
        assert slice_ is not None
        return -here.common(slice_.locality), (index - own) % len(offered)

    preferred = [offered[index].info.index for index in sorted(range(len(offered)), key=distance)]
    chosen = store.planned_steps.claim_slice(config.feed.name, config.feed.epoch, step, task=task, preferred=preferred)
    return next(each for each in offered if each.info.index == chosen)
