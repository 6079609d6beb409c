"""Every promise has a saboteur. The table shows which tests fail, and survives saboteurs that kill their process."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from cdc_conformance.components import registration_of
from cdc_conformance.reference.sink import REFERENCE_SINK, ReferenceSink
from cdc_conformance.sabotage.breaking import breaks, broken, mistakes
from cdc_conformance.sabotage.cases import HOMES, Case, Kind, Result, chosen, kinds, lines, verdict
from cdc_conformance.sabotage.running import run

from cdc_core import Flushed
from cdc_core.plugins.classes import load_class, load_function

SABOTEURS = '''
import os, signal, threading, time
import pytest
from cdc_conformance.promises import Conformance
from cdc_core import SinkRegistration
from cdc_core.plugins.classes import load_class

class Paper:
    """Keeps every promise."""

    def flush(self): return True
    def close(self): return True
    def begin(self): return True

class Forgetful(Paper):
    """Does not wait.

    A common mistake.
    """
    def flush(self): return False

class Careless(Paper):
    """Breaks two promises at once."""
    def close(self): return False
    def begin(self): return False

class Harmless(Paper):
    """Breaks nothing."""

class Sleepy(Paper):
    """Waits for ever."""
    def flush(self): threading.Event().wait()

class Deaf(Paper):
    """Waits for ever and cannot be interrupted."""
    def flush(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        threading.Event().wait()

class Deadly(Paper):
    """Kills its process."""
    def flush(self): os.kill(os.getpid(), signal.SIGKILL)

class PaperConformance(Conformance):
    kind = "sink"

    @pytest.fixture
    def component(self):
        return load_class(self.sink.sink, owner="paper")()

    def test_flush_is_a_barrier(self, component): assert component.flush(), "flush did not wait"
    def test_close_works(self, component): assert component.close(), "close failed"
    def test_begin_works(self, component): assert component.begin(), "begin failed"

def registration(cls):
    parts = {"sink": f"{__name__}:{cls.__name__}", "resolved_sink": "p:R", "destination": "p:D"}
    mistake = cls.__doc__.partition(".")[0] + "."
    return SinkRegistration(name="p", **parts, options="p:O", summary=mistake, schemes=("p",), output="files")

class SUITE(PaperConformance):
    sink = registration(Paper)

SABOTEURS = {}
'''


@mistakes
class Flushes(ReferenceSink):
    @breaks("test_flush_counts_bytes", "flush", refuses_rows=False)
    def counts_no_bytes(self) -> Flushed:
        """Counts
        messages only.

        Many do.
        """
        return dataclasses.replace(super().flush(), bytes=0)


def test_a_marked_method_becomes_a_registered_component_with_this_mistake() -> None:
    made = broken(REFERENCE_SINK, sys.modules[__name__])
    target = f"{__name__}:CountsNoBytes"
    changes = {"sink": target, "summary": "Counts messages only.", "refuses_rows": False}
    assert made == {"test_flush_counts_bytes": dataclasses.replace(REFERENCE_SINK, **changes)}  # type: ignore[arg-type]
    saboteur = load_class(target, owner="the test", base=Flushes)
    assert saboteur.flush is Flushes.counts_no_bytes
    assert Flushes.flush is ReferenceSink.flush


@pytest.mark.parametrize("name", HOMES)
def test_every_promise_has_a_saboteur_with_parts_of_its_own_that_can_be_loaded(name: str) -> None:
    kind = kinds(only={name})[name]
    assert {Case(name, promise).test for promise in kind.saboteurs} == set(kind.promises)
    reference = registration_of(kind.suite, kind.suite.kind)
    parts = []
    for promise, saboteur in kind.saboteurs.items():
        assert saboteur.summary
        assert saboteur != dataclasses.replace(reference, summary=saboteur.summary)
        for field in (*saboteur.CLASSES, "options"):
            if getattr(saboteur, field) != getattr(reference, field):
                load = load_function if field == "function" else load_class
                parts.append(load(getattr(saboteur, field), owner=promise))
    assert len(set(parts)) == len(parts)
    assert all(part.__doc__ for part in parts)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of saboteurs. The parameter is a class for each promise."""
    name = "cdc_t_saboteurs_" + re.sub(r"\W", "_", tmp_path.name)
    entries = "".join(f"SABOTEURS['test_{promise}'] = registration({cls})\n" for promise, cls in request.param.items())
    (tmp_path / f"{name}.py").write_text(SABOTEURS + entries)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return name


def table(home: str, *, limit_s: float = 20.0, jobs: int = 2) -> tuple[dict[str, str], str]:
    """Return the verdict of each case by saboteur, and the table as text."""
    homes = {"sink": home}
    of_kind = kinds(homes)
    cases = of_kind["sink"].cases()
    existing = [case for case in cases if not case.promise or case.promise in of_kind["sink"].saboteurs]
    results = run(existing, homes=homes, jobs=jobs, limit_s=limit_s)
    problems = {case: verdict(case, of_kind["sink"], results.get(case)) for case in cases}
    shown = "\n".join(lines(results, problems, of_kind))
    return {of_kind["sink"].saboteur(case)[0]: problem for case, problem in problems.items()}, shown


@pytest.mark.parametrize(
    "home", [{"flush_is_a_barrier": "Forgetful", "close_works": "Careless", "begin_works": "Harmless"}], indirect=True
)
def test_a_saboteur_must_fail_its_own_test_and_no_other(home: str) -> None:
    verdicts, shown = table(home)
    assert verdicts == {
        "Paper": "",
        "Forgetful": "",
        "Careless": "fails also test_begin_works",
        "Harmless": "fails no test",
    }
    assert [re.split(" {2,}", line) for line in shown.splitlines()[:3]] == [
        ["KIND", "PROMISE", "SABOTEUR", "FAILED", "VERDICT", "MISTAKE"],
        ["sink", "(all: reference)", "Paper", "-", "ok"],
        ["sink", "test_flush_is_a_barrier", "Forgetful", "its own", "ok", "Does not wait."],
    ]
    assert "sink test_close_works (Careless): fails also test_begin_works\n    test_begin_works: begin failed" in shown
    assert shown.endswith("3 saboteurs and 1 reference: 2 wrong")


@pytest.mark.parametrize(
    "home", [{"flush_is_a_barrier": "Deadly", "close_works": "Forgetful", "begin_works": "Harmless"}], indirect=True
)
def test_a_saboteur_that_kills_its_process_stops_no_other(home: str) -> None:
    verdicts, _ = table(home)
    assert verdicts == {
        "Paper": "",
        "Deadly": "hung or died",
        "Forgetful": "does not fail its own test; fails test_flush_is_a_barrier",
        "Harmless": "fails no test",
    }


@pytest.mark.parametrize("home", [{"flush_is_a_barrier": "Sleepy", "close_works": "Deaf"}], indirect=True, ids=["two"])
def test_a_saboteur_that_hangs_fails_or_is_ended(home: str) -> None:
    verdicts, _ = table(home, limit_s=3.0)
    assert verdicts["Sleepy"] == ""
    assert verdicts["Deaf"] == "hung or died"
    assert verdicts["-"] == "has no saboteur, so nothing proves that the test can fail"


@pytest.fixture
def kind() -> Kind:
    class Suite:
        summaries = frozenset({"test_sum"})

        def test_a(self) -> None: ...

        def test_b(self) -> None: ...

        def test_sum(self) -> None: ...

    saboteurs = ["test_a[one_way]", "test_a[another]", "test_sum", "test_gone"]
    return Kind(name="sink", suite=Suite, saboteurs=dict.fromkeys(saboteurs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("promise", "outcomes", "problem"),
    [
        ("", {"test_a": "passed", "test_b": "passed", "test_sum": "passed"}, ""),
        ("", {"test_a": "passed", "test_b": "skipped", "test_sum": "passed"}, "skips test_b"),
        ("", {"test_a": "failed", "test_b": "passed", "test_sum": "passed"}, "fails test_a"),
        ("", {"test_a": "passed", "test_sum": "passed"}, "did not run test_b"),
        ("", {"test_a": "passed", "test_b": "passed", "test_sum": "failed"}, "fails test_sum"),
        ("test_a[one_way]", {"test_a": "failed", "test_b": "passed", "test_sum": "failed"}, ""),
        ("test_sum", {"test_a": "failed", "test_b": "passed", "test_sum": "failed"}, "fails also test_a"),
        ("test_a[another]", {"test_a": "failed", "test_b": "passed", "test_sum": "passed"}, ""),
        ("test_a[another]", {"test_a": "error", "test_b": "passed", "test_sum": "passed"}, ""),
        (
            "test_a[another]",
            {"test_a": "skipped", "test_b": "failed", "test_sum": "passed"},
            "does not fail its own test; fails test_b; skips test_a",
        ),
        ("test_b", {}, "has no saboteur, so nothing proves that the test can fail"),
        ("test_gone", {}, "breaks a promise that does not exist"),
    ],
)
def test_the_verdict_says_what_is_wrong(kind: Kind, promise: str, outcomes: dict[str, str], problem: str) -> None:
    assert verdict(Case("sink", promise), kind, Result(outcomes=outcomes)) == problem


def test_a_test_with_parameters_fails_when_one_of_them_does() -> None:
    result = Result()
    for test, outcome in (("test_a[1]", "passed"), ("test_a[2]", "failed"), ("test_a[3]", "passed")):
        result.add(test, outcome, outcome)
    assert (result.failed(), result.reasons) == (["test_a"], {"test_a": "failed"})


def test_one_promise_can_be_chosen(kind: Kind) -> None:
    several = [Case("sink", "test_a[one_way]"), Case("sink", "test_a[another]")]
    assert chosen(kind.cases(), "a") == chosen(kind.cases(), "test_a") == several
    assert chosen(kind.cases(), "a[another]") == several[1:]
    assert chosen(kind.cases(), "c") == []
