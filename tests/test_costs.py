"""What tests cost is counted, and a file that costs too much is named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cdc_testing import budgets
from cdc_testing.costs import ProcessorTime

BURN = "import time\nwhile time.process_time() < {}: pass\n"
PARENT = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])\nprint(flush=True)\ninput()"


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@contextmanager
def child(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A child that has said that it is done, and waits."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_time_of_this_process_and_of_ended_children_counts_once() -> None:
    spent = ProcessorTime()
    burn(0.3)
    with child(PARENT, BURN.format(0.5)) as process:
        while_it_lives = spent.read()
        assert 0.75 <= while_it_lives < 1.6
        process.communicate("\n")
        assert while_it_lives <= spent.read() < while_it_lives + 0.5


def test_time_of_a_process_that_was_killed_counts() -> None:
    spent = ProcessorTime()
    with child(BURN.format(0.3) + "print(flush=True)\ninput()"):
        pass
    assert 0.25 <= spent.read() < 1.0


@pytest.fixture
def budget_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "budgets.toml"
    file.write_text('[fast]\n"others" = 3\n"tests/test_dear.py" = 20\n\n[slow]\n"others" = 5\n')
    monkeypatch.setattr(budgets, "ROOT", tmp_path)
    monkeypatch.setattr(budgets, "FILE", file)
    budgets.budgets.cache_clear()
    yield file
    budgets.budgets.cache_clear()


def cost(**files: float) -> dict[str, dict[str, float]]:
    return {f"tests/{name}.py": {"cpu_s": seconds, "wall_s": 0.0, "tests": 1} for name, seconds in files.items()}


def test_a_file_over_its_budget_by_more_than_half_is_named(budget_file: Path) -> None:
    [said] = budgets.exceeded("fast", cost(test_dear=30.1, test_other=4.4)).values()
    assert said.startswith("tests/test_dear.py took 30.1 s of processor time, and its budget is 20 s (fast). Make its")
    assert not budgets.exceeded("slow", cost(test_other=7.4))
    assert len(budgets.exceeded("slow", cost(test_other=7.6))) == 1
    of_spark = {"tests/spark/test_first.py": {"cpu_s": 12.4, "wall_s": 0.0, "tests": 1}}
    assert not budgets.exceeded("fast", of_spark)


@pytest.mark.parametrize("seconds", [4.4, 4.6])
def test_a_file_that_cost_too_much_beside_others_is_measured_alone(
    budget_file: Path, capsys: pytest.CaptureFixture[str], seconds: float
) -> None:
    budgets.costs_file().parent.mkdir()
    budgets.costs_file().write_text(json.dumps({"not slow": {"files": cost(test_waiting=9.0, test_cheap=1.0)}}))
    (budget_file.parent / "pytest.py").write_text(
        "import json, pathlib, sys\n"
        "assert sys.argv[1:] == ['-q', '-m', 'not slow', 'tests/test_waiting.py']\n"
        f"costs = json.dumps({{'not slow': {{'files': {cost(test_waiting=seconds)!r}}}}})\n"
        "pathlib.Path('build/test-costs.json').write_text(costs)\n"
    )
    assert budgets.main() == (seconds > 4.5)
    said = capsys.readouterr()
    assert "tests/test_waiting.py took 9.0 s" in said.out
    assert ("tests/test_waiting.py took 4.6 s" in said.err) == (seconds > 4.5)
    kept = json.loads(budgets.costs_file().read_text())["not slow"]["files"]
    assert kept == cost(test_waiting=seconds, test_cheap=1.0)


def test_what_was_measured_becomes_the_budget(budget_file: Path) -> None:
    budgets.update({"fast": cost(test_cheap=1.0, test_new=7.2)})
    budgets.budgets.cache_clear()
    assert budgets.budgets("fast") == {"others": 3, "tests/test_new.py": 8}
    assert budgets.budgets("slow") == {"others": 5}
