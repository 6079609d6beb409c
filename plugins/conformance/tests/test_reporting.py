"""The report: the outcome of each promise, for people and for programs, without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

SUITE = '''
import dataclasses
import pytest
from cdc_conformance import Conformance, requires
from cdc_conformance.promises import does_not_apply
from cdc_conformance.reference.sink import REFERENCE_SINK

SHELF = dataclasses.replace(REFERENCE_SINK, name="shelf", options="s:O")

class Delivery:
    def test_flush_is_a_barrier(self, sink_uri):
        """After `flush` returns, every row is there.

        Look at what `flush` waits for.
        """
        seen = [1]
        assert seen == [1, 2], f"after flush row 2 was not there;\\nthe sink was opened with {sink_uri}"

    def test_rows_come_in_order(self, sink_uri):
        """Rows of a key come in order."""

class PaperConformance(Delivery, Conformance):
    kind = "sink"
    known_capabilities = {"stall": "it can be stopped", "idempotent": "no repeats"}

    @pytest.fixture
    def broken(self):
        raise LookupError("the shelf hunter2 is gone")

    @requires("stall", "the test must stop it")
    def test_memory_is_bounded(self): pass

    def test_envelopes(self): does_not_apply("the sink accepts no envelope")

    def test_close_may_be_called_twice(self): raise OSError("no shelf at hunter2")

    def test_begin_is_cheap(self, broken): pass

    def test_values_survive(self): pass

class TestShelf(PaperConformance):
    sink = SHELF
    capabilities = {"idempotent"}

    @pytest.fixture
    def sink_uri(self): return "shelf://me:hunter2@room/a?api_key=k3yk3y"

    @pytest.mark.xfail(reason="shelves bend", strict=False)
    def test_values_survive(self): pass

class TestOther:
    def test_of_another_kind(self): pass
'''


COUNTS = {"passed": 1, "failed": 2, "error": 1, "skipped": 0, "xfailed": 1, "not_declared": 2}


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_shelf=SUITE)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def document(pytester: pytest.Pytester, *arguments: str) -> dict[str, Any]:
    run(pytester, "--cdc-report", "promises.json", *arguments)
    found: dict[str, Any] = json.loads((pytester.path / "promises.json").read_text())
    return found


def test_the_document_holds_the_outcome_of_each_promise(pytester: pytest.Pytester) -> None:
    found = document(pytester)
    assert found["schema"] == 1
    assert found["versions"].keys() == {"cdc-core", "cdc-conformance", "pytest", "python"}
    assert found["counts"] == {**COUNTS, "deselected": 0}
    (suite,) = found["suites"]
    promises = {promise.pop("name"): promise for promise in suite.pop("promises")}
    assert suite == {
        "suite": "test_shelf.py::TestShelf",
        "kind": "sink",
        "name": "shelf",
        "distribution": {"name": None, "version": None},
        "capabilities": ["idempotent"],
        "undeclared": ["stall"],
        "counts": COUNTS,
    }
    seconds = {name: promise.pop("seconds") for name, promise in promises.items()}
    assert all(0 <= spent < 10 for spent in seconds.values())
    assert promises["test_flush_is_a_barrier"] == {
        "topic": "Delivery",
        "outcome": "failed",
        "reason": "after flush row 2 was not there;\nthe sink was opened with shelf://me:***@room/a?api_key=***",
        "contract": "After `flush` returns, every row is there.\n\nLook at what `flush` waits for.",
    }
    assert promises["test_memory_is_bounded"]["outcome"] == "not_declared"
    assert promises["test_memory_is_bounded"]["reason"] == "needs the capability 'stall': the test must stop it"
    assert promises["test_envelopes"]["outcome"] == "not_declared"
    assert promises["test_envelopes"]["reason"] == "the sink accepts no envelope"
    assert promises["test_begin_is_cheap"]["outcome"] == "error"
    assert promises["test_close_may_be_called_twice"]["outcome"] == "failed"


def test_a_promise_that_was_overridden_is_never_reported_as_kept(pytester: pytest.Pytester) -> None:
    (suite,) = document(pytester, "-k", "values")["suites"]
    (promise,) = [promise for promise in suite["promises"] if promise["name"] == "test_values_survive"]
    assert (promise["outcome"], promise["reason"]) == ("xfailed", "shelves bend")


def test_the_document_counts_deselected_promises(pytester: pytest.Pytester) -> None:
    assert document(pytester, "-k", "values")["counts"]["deselected"] == 5


def test_an_error_shows_where_it_was_raised_without_frames_of_pytest(pytester: pytest.Pytester) -> None:
    (suite,) = document(pytester, "-k", "twice")["suites"]
    (promise,) = [promise for promise in suite["promises"] if promise["outcome"] == "failed"]
    assert promise["reason"].startswith("OSError: no shelf at hunter2\n")  # this test uses no secret
    assert "test_shelf.py" in promise["reason"]
    assert "site-packages" not in promise["reason"]


def test_no_secret_is_shown_once_it_was_used(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--cdc-report", "promises.json", "--showlocals")
    shown = result.stdout.str() + (pytester.path / "promises.json").read_text()
    assert "no shelf at ***" in shown
    assert "k3yk3y" not in shown
    assert "hunter2" not in shown.replace('raise OSError("no shelf at hunter2")', "").replace(
        'raise LookupError("the shelf hunter2 is gone")', ""
    ), "only the source of the test shows it"


def test_people_see_counts_capabilities_and_versions(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--cdc-report", "promises.json", "-k", "not twice")
    result.stdout.fnmatch_lines(
        [
            "sink 'shelf' of no installed distribution: 1 kept, 1 broken, 1 not tested because of an error, "
            "1 overridden with a reason, 2 not declared",
            "  capabilities: idempotent; not declared: stall",
            "  1 not applicable: the sink accepts no envelope",
            "cdc-core *, cdc-conformance *, pytest *, python *",
            "1 deselected",
            "written to promises.json",
        ]
    )


def test_a_run_without_a_report_prints_no_summary(pytester: pytest.Pytester) -> None:
    assert "promises ==" not in run(pytester).stdout.str()


def test_a_report_that_cannot_be_written_is_refused_before_the_run(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--cdc-report", str(Path("nowhere") / "promises.json"))
    result.stderr.fnmatch_lines(["ERROR: --cdc-report: there is no directory */nowhere"])


def test_workers_of_pytest_xdist_send_what_is_not_declared(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    assert document(pytester, "-p", "xdist", "-n", "1")["counts"] == {**COUNTS, "deselected": 0}
