"""The protocol of a step, played without any process: whatever source and clock do, the order and the rules hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import ContractError, Flushed, Frontier, Slice, Span, SpanMark, StepLimit, Timestamp
from cdc_core.engine.slices import PlannedSlice, SliceReport
from cdc_core.engine.step_actions import (
    AddRescans,
    Advance,
    Completing,
    Cut,
    CutStep,
    EmitResolved,
    Planned,
    Planning,
    ReadClock,
    Release,
    Repeat,
    RepeatedStep,
    Save,
    SavePlan,
)
from cdc_core.engine.step_machine import StepMachine, StepRules, perform
from cdc_core.engine.time_range import TimeRange
from cdc_core.store.values import Progress

SPANS = [Span("db.public.a"), Span("db.public.b")]
RULES = StepRules(
    rangefeed="rangefeed 'x'",
    limit=StepLimit(rows=10, bytes=10),
    within=TimeRange(),
    scans_only=False,
    apart_s=0.0,
    resolved_interval_s=0.0,
    is_sharded=False,
)


class Host:
    """Carries actions out in memory, and keeps them. The source is at `clock`; each step reads up to there."""

    def __init__(self, rules: StepRules = RULES, *, progress: Progress | None = None) -> None:
        self.clock = 10
        self.now = 0.0
        self.done: list[Planning | Completing] = []
        self.repeated: RepeatedStep | None = None
        self.rescans = False
        self.lower: int | None = None
        self.saved = progress or Progress(token={"at": 0}, frontier=Frontier(SPANS))
        self.machine = StepMachine(rules)
        self.machine.resume(self.saved, step=-1, now=self.now)

    def do(self, action: Planning | Completing) -> object:
        self.done.append(action)
        match action:
            case ReadClock():
                return Timestamp(self.clock)
            case Repeat():
                return self.repeated
            case AddRescans():
                return {**action.start, "again": True} if self.rescans else action.start
            case Advance():
                return {"at": self.clock}
            case Cut():
                lower = action.after.wall + 1 if self.lower is None else self.lower
                return CutStep(slices=[Slice(lower=Timestamp(lower), payload=index) for index in range(2)])
            case Save():
                self.saved = replace(action.progress)
        return None

    def plan(self) -> Sequence[PlannedSlice]:
        self.done = []
        return perform(self.machine.plan(self.now), self.do)

    def complete(self, planned: Sequence[PlannedSlice], *marks: SpanMark) -> None:
        self.done = []
        perform(self.machine.complete([reported(each, *marks) for each in planned], self.now), self.do)

    def step(self, *marks: SpanMark) -> list[type[object]]:
        """Take a step, and return the kinds of all actions in their order."""
        planned = self.plan()
        done = self.done
        if planned:
            self.complete(planned, *marks)
            done = done + self.done
        return [type(action) for action in done]


def reported(planned: PlannedSlice, *marks: SpanMark) -> SliceReport:
    return SliceReport(planned=planned, marks=marks, rows=1, flushed=Flushed(), seconds=0.0)


def marks_at(wall: int, *, resolved: bool = True, spans: Sequence[Span] = SPANS) -> list[SpanMark]:
    return [SpanMark(span=span, timestamp=Timestamp(wall), resolved=resolved) for span in spans]


def test_a_step_is_saved_before_its_mark_is_emitted_and_history_is_released_last() -> None:
    host = Host()
    planning = [Repeat, AddRescans, Advance, Planned, Cut, SavePlan]
    assert host.step(*marks_at(10)) == [*planning, Save, EmitResolved, Release]
    host.clock = 20
    assert host.step(*marks_at(20)) == [*planning[1:], Save, EmitResolved, Release]
    assert (host.saved.token, host.saved.resolved, host.saved.latest) == ({"at": 20}, Timestamp(20), Timestamp(20))


def test_a_source_without_news_has_no_step() -> None:
    host = Host()
    host.step(*marks_at(10))
    assert host.step() == [AddRescans, Advance]


def test_a_rescan_is_asked_for_again_until_a_step_holds_it() -> None:
    host = Host()
    host.rescans = True
    host.step(*marks_at(10))
    cut = next(action for action in host.done if isinstance(action, Save))
    assert cut.step == 0
    host.clock = 20
    host.plan()
    assert [action.step for action in host.done if isinstance(action, AddRescans)] == [1]
    assert [action.start for action in host.done if isinstance(action, Advance)] == [{"at": 10, "again": True}]


def test_a_plan_that_an_earlier_attempt_left_is_repeated_once_under_its_number() -> None:
    host = Host()
    slices = [Slice(lower=Timestamp(1), payload="old")]
    host.repeated = RepeatedStep(step=7, end={"at": 5}, planned_by=3, slices=slices)
    planned = host.plan()
    assert [type(action) for action in host.done] == [Repeat, Planned, Cut]
    assert {(each.info.step, each.info.planned_by) for each in planned} == {(7, 3)}
    host.complete(planned, *marks_at(5))
    host.plan()
    assert [action.step for action in host.done if isinstance(action, Planned)] == [8]


def test_steps_are_apart_in_the_time_of_the_source_and_a_rescan_does_not_wait() -> None:
    host = Host(replace(RULES, apart_s=5.0))
    host.clock = 10**10
    host.step(*marks_at(10**10))
    assert host.step() == [ReadClock, AddRescans]
    assert host.machine.wait_s(host.now) == 5.0
    host.rescans = True
    assert host.step(*marks_at(10**10)) == [AddRescans, Advance, Planned, Cut, SavePlan, Save, Release]


def test_a_changefeed_that_is_behind_or_scans_does_not_wait() -> None:
    behind = Host(replace(RULES, apart_s=5.0))
    behind.step(*marks_at(10))
    behind.clock = 6 * 10**9
    assert behind.step(*marks_at(behind.clock))[:3] == [ReadClock, AddRescans, Advance]
    scanning = Host(replace(RULES, apart_s=5.0))
    scanning.step(*marks_at(10, resolved=False))
    scanning.clock = 11
    assert scanning.step(*marks_at(11, resolved=False))[:2] == [AddRescans, Advance]


@pytest.mark.parametrize(
    "rules", [replace(RULES, scans_only=True), replace(RULES, within=TimeRange(end=Timestamp(10)))]
)
def test_no_step_follows_the_end(rules: StepRules) -> None:
    host = Host(rules)
    host.step(*marks_at(10))
    host.clock = 20
    assert host.machine.is_over
    assert host.step() == []


def test_the_scan_is_not_over_before_all_of_it_is_resolved() -> None:
    host = Host(replace(RULES, scans_only=True))
    host.step(*marks_at(10, spans=SPANS[:1]))
    assert not host.machine.is_over
    assert (host.saved.latest, host.saved.resolved) == (Timestamp(10), Timestamp())


@pytest.mark.parametrize(("failing", "before"), [(Save, []), (EmitResolved, [Save])])
def test_after_an_action_that_fails_nothing_more_is_done(failing: type[Completing], before: list[type[object]]) -> None:
    def fail(action: Completing) -> object:
        if isinstance(action, failing):
            raise OSError("disk full")
        return host.do(action)

    host = Host()
    reports = [reported(planned, *marks_at(10)) for planned in host.plan()]
    host.done = []
    with pytest.raises(OSError, match="disk full"):
        perform(host.machine.complete(reports, host.now), fail)
    assert [type(action) for action in host.done] == before


def test_slices_below_what_is_resolved_and_none_at_all_are_the_rangefeeds_fault() -> None:
    host = Host()
    host.step(*marks_at(10))
    host.clock, host.lower = 20, 10
    with pytest.raises(
        ContractError, match=r"rangefeed 'x' broke its contract: a slice begins at 10\.0+, but 10\.0+ is"
    ):
        host.plan()
    assert SavePlan not in map(type, host.done), "another attempt would repeat it"
    host = Host()
    plan = host.machine.plan(0.0)
    with pytest.raises(ContractError, match="at least one slice"):
        perform(plan, lambda action: CutStep(slices=()) if isinstance(action, Cut) else host.do(action))


def test_a_machine_that_goes_on_from_progress_in_memory_knows_which_mark_was_emitted() -> None:
    host = Host(replace(RULES, resolved_interval_s=60.0))
    host.step(*marks_at(10))
    host.clock = 20
    host.step(*marks_at(20, resolved=False))  # between two marks
    assert host.machine.progress.emitted == Timestamp(10)
    later = Host(replace(RULES, resolved_interval_s=60.0), progress=host.machine.progress)
    later.clock = 30
    assert EmitResolved not in later.step(*marks_at(30))


def test_a_step_that_breaks_a_rule_is_not_saved() -> None:
    host = Host()
    host.step(*marks_at(10))
    host.clock = 20
    before, planned = host.saved, host.plan()
    with pytest.raises(ContractError, match="below 10"):
        host.complete(planned, *marks_at(9))
    with pytest.raises(ContractError, match="without reports"):
        host.complete(planned[:1], *marks_at(20))
    assert host.done == []
    assert host.saved == before


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([[0], [1], [0, 1]]), st.integers(0, 3), st.booleans(), st.floats(0, 20)), max_size=12
    ),
    interval_s=st.sampled_from([None, 0.0, 2.0]),
)
def test_marks_rise_cover_only_what_is_saved_and_keep_their_distance(
    steps: list[tuple[list[int], int, bool, float]], interval_s: float | None
) -> None:
    """Whatever is resolved, of whichever spans, and however much time passes in between."""
    host = Host(replace(RULES, resolved_interval_s=interval_s))
    emitted: list[tuple[Timestamp, float]] = []
    for spans, seconds, resolved, passed in steps:
        host.clock += 1 + seconds * 10**9
        host.now += passed
        planned = host.plan()
        host.complete(planned, *marks_at(host.clock, resolved=resolved, spans=[SPANS[index] for index in spans]))
        kinds = [type(action) for action in host.done]
        assert kinds in ([Save, Release], [Save, EmitResolved, Release])
        for action in host.done:
            if isinstance(action, EmitResolved):
                assert action.mark == host.saved.frontier.high_water
                emitted.append((action.mark, host.now))
    assert interval_s is not None or not emitted
    for (mark, at), (later, then) in pairwise(emitted):
        assert mark < later
        assert later.wall - mark.wall >= (interval_s or 0.0) * 1e9 or then - at >= 10.0
