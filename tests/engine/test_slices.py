from __future__ import annotations

import pytest

from cdc_core import ContractError, Flushed, SliceInfo, Timestamp
from cdc_core.engine.slices import PlannedSlice, SliceReport, complete_step, joined_failures
from cdc_core.errors import RetryableSinkError, TerminalSinkError, from_wire, to_wire


def report(index: int, *, slices: int = 2, step: int = 3, end: int = 10) -> SliceReport:
    info = SliceInfo(step=step, index=index, lower=Timestamp(1))
    planned = PlannedSlice(slice=None, info=info, slices=slices, end={"n": end})
    return SliceReport(planned=planned, marks=(), rows=0, flushed=Flushed(), seconds=0.0)


def test_a_step_is_complete_when_all_slices_have_reported() -> None:
    reports = [report(0), report(1)]
    assert complete_step(reports) == reports


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param([], id="no partition"),
        pytest.param([None], id="a message that knows nothing"),
        pytest.param([report(1)], id="one of two"),
        pytest.param([report(0), None], id="one of two and nothing"),
        pytest.param([report(0), report(0)], id="one twice"),
        pytest.param([report(0), report(1), report(1)], id="one too many"),
        pytest.param([report(0), report(1, step=4)], id="another step"),
        pytest.param([report(0), report(1, end=11)], id="another end"),
    ],
)
def test_progress_is_not_saved_without_the_report_of_every_slice(reports: list[SliceReport | None]) -> None:
    with pytest.raises(ContractError, match="progress is not saved"):
        complete_step(reports)


def test_the_missing_slice_is_named() -> None:
    with pytest.raises(ContractError, match=r"step 3 .* slices \[0, 2\] of 3"):
        complete_step([report(1, slices=3)])


def test_of_several_failures_the_one_that_no_retry_cures_decides() -> None:
    short = to_wire(RetryableSinkError("a"))
    long = to_wire(RetryableSinkError("b", retry_after_s=60))
    terminal = to_wire(TerminalSinkError("c"))
    repairable = to_wire(TerminalSinkError("d", repairable=True))
    assert str(from_wire(joined_failures([short, long, repairable, terminal]))) == "c"
    assert str(from_wire(joined_failures([short, long, repairable]))) == "d"
    assert str(from_wire(joined_failures([short, long, short]))) == "b"
    assert str(from_wire(joined_failures(["unknown", short]))) == "a"


def test_of_several_failures_none_is_left_out() -> None:
    assert joined_failures(["one", "two", "three"]).splitlines() == ["one", "two", "three"]
