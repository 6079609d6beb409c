"""What crosses the pipes between a node and a child process."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest

from cdc_core.engine.ipc import line, outcome_of, outcome_values, packed, read_lines, unpacked
from cdc_core.engine.supervisor import Outcome
from cdc_core.errors import ConfigError, RetryableSinkError
from cdc_core.rangefeed_values import ScanProgress
from cdc_core.telemetry.status import Retrying, Status
from cdc_core.timestamp import Timestamp

STATUSES = [
    Status(changefeed="t", phase="starting"),
    Status(
        changefeed="t",
        phase="paused",
        rows=3,
        rows_per_s=1.5,
        high_water=Timestamp(5, 1),
        scan=ScanProgress(done=1, total=2, unit="chunks"),
        shares={"source": 0.5},
        waiting_on="sink 'x'",
        waiting_on_s=2.0,
        paused_since=datetime(2026, 1, 31, tzinfo=UTC),
        next_attempt_s=3.0,
        notice="old",
        retrying=Retrying.after(None, "no route"),
    ),
]


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.phase)
def test_a_status_arrives_as_it_was(status: Status) -> None:
    assert unpacked(packed(status)) == status


def test_an_error_arrives_as_its_class_and_without_secrets() -> None:
    told = Outcome("failed", RetryableSinkError("login with s3cret failed", retry_after_s=2.0, outage=False))
    error = outcome_of(json.loads(json.dumps(outcome_values(told, frozenset({"s3cret"}))))).error
    assert isinstance(error, RetryableSinkError)
    assert (str(error), error.retry_after_s, error.outage) == ("login with *** failed", 2.0, False)
    refused = outcome_of(outcome_values(Outcome("failed", ConfigError("no table")), frozenset())).error
    assert isinstance(refused, ConfigError)


def test_an_error_outside_the_tree_keeps_its_text() -> None:
    found = outcome_of(outcome_values(Outcome("failed", KeyError("a s3cret")), frozenset({"s3cret"})))
    assert isinstance(found.error, RuntimeError)
    assert str(found.error) == "KeyError: 'a ***'"
    assert outcome_of(outcome_values(Outcome("stopped"), frozenset())) == Outcome("stopped")


def test_a_line_arrives_when_it_is_whole_and_never_in_part() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        lines = read_lines(pipe)
        os.write(writing, line(order="stop") + b'{"until"')
        assert next(lines) == {"order": "stop"}
        os.write(writing, b": 1.5}\n{}")
        os.close(writing)
        assert list(lines) == [{"until": 1.5}]
