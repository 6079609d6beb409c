"""What a step machine asks for, and what it is answered: see `cdc_core.engine.step_machine`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cdc_core.delivery.tracing import StepTrace
from cdc_core.engine.slices import SliceReport
from cdc_core.rangefeed_values import Token
from cdc_core.step_planner import Slice, StepLimit
from cdc_core.store.values import Progress
from cdc_core.timestamp import Timestamp

# What `plan` yields, and what it wants to be sent.


@dataclass(frozen=True, slots=True)
class ReadClock:
    """`StepPlanner.now`. Result: Timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Find out whether an earlier attempt left the plan of the step after *start*. Result: RepeatedStep | None."""

    start: Token
    after: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedStep:
    """The step that attempt `planned_by` has planned, and did not save."""

    step: int
    end: Token
    planned_by: int
    slices: Sequence[Slice]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRescans:
    """Add to *start* the rescans that wait; `step` is the one that will hold them. Result: Token, *start* for none."""

    step: int
    start: Token
    after: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """`StepPlanner.advance`. Result: Token."""

    start: Token
    after: Timestamp
    limit: StepLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """It is decided where the step ends. Nothing is to be done; Spark asks for the slices in another call."""

    step: int
    end: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`StepPlanner.slices`, unless the slices of a repeated step are known. Result: CutStep."""

    step: int
    start: Token
    end: Token
    after: Timestamp
    repeated: RepeatedStep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStep:
    """The slices of a step, and what holds for all of them: see `PlannedSlice`."""

    slices: Sequence[Slice]
    blocked: Sequence[tuple[str, str]] = ()
    trace: StepTrace | None = None
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePlan:
    """Make the plan of a step durable, so that another attempt can repeat it. No result."""

    step: int
    start: Token
    end: Token
    after: Timestamp
    slices: Sequence[Slice]
    blocked: Sequence[tuple[str, str]]


Planning: TypeAlias = ReadClock | Repeat | AddRescans | Advance | Planned | Cut | SavePlan


# What `complete` yields. There are no results.


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Save *progress*, in one transaction with what the sinks say about the step."""

    step: int
    progress: Progress
    reports: Sequence[SliceReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitResolved:
    """Emit *mark*: everything at or before it is saved as delivered."""

    mark: Timestamp
    latest: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """`SourceHistory.release`. A failure that a retry may cure is harmless: the next step's release covers it."""

    token: Token


Completing: TypeAlias = Save | EmitResolved | Release
