"""What a test counted, in the summary that stands at the end of the run's log, also when the test passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

_PROPERTY = "counts"


class Counts(Protocol):
    """Takes note of numbers by name: `counts(rows=17, kills=3)`."""

    def __call__(self, **numbers: int) -> None: ...


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Counts:
    """Numbers given to this stand in the log's summary, one line for each test."""

    def note(**numbers: int) -> None:
        record_property(
            _PROPERTY, ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in numbers.items())
        )

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted."""
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {value}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("counts")
        for line in lines:
            terminalreporter.write_line(line)
