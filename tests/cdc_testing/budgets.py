"""The budget of each test file, in processor seconds, and what became of it in the last runs.

`python -m cdc_testing.budgets` prints the dearest files, and exits with 1 when a file took more than its budget and
half of it again, first beside others and then alone. With `--update` it writes budgets from what was measured.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "budgets.toml"
SECTIONS = {"not slow": "fast", "slow": "slow"}
"""By the marker expression of a run, its section."""
OTHERS = "others"
"""What stands for a file without a budget of its own."""
ALLOWED = 1.5
_OF_SPARK = ("tests/spark/", "tests/end_to_end/", "tests/incidents/", "tests/nemesis/")
_FIRST_QUERY_S = 8.0
"""What a JVM loads with its first query, in whichever file that comes."""
_SHOWN = 30
_HEAD = """\
# Processor seconds that the tests of a file may take, with the processes that they start: in `make test` (fast) and in
# `make test-slow` (slow). "others" is for each file that is not listed. CI fails when a file takes more than its
# budget and half of it again, alone too. Make its tests cheaper, or raise the budget and say why in the commit:
# `python -m cdc_testing.budgets --update` writes what the last runs took.
"""


def costs_file() -> Path:
    """Return where runs leave their costs."""
    return ROOT / "build" / "test-costs.json"


def dearest(files: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line each of the files that cost most."""
    first = sorted(files.items(), key=lambda pair: -pair[1]["cpu_s"])[:_SHOWN]
    return [
        f"{cost['cpu_s']:8.1f} s  {cost['wall_s']:8.1f} s of wall  {int(cost['tests']):4}  {name}"
        for name, cost in first
    ]


@cache
def budgets(section: str) -> Mapping[str, float]:
    """Return the budgets of *section*, and in OTHERS that of all other files."""
    found: Mapping[str, float] = tomllib.loads(FILE.read_text())[section]
    return found


def exceeded(section: str, files: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return those of *files* that cost too much, each with a sentence."""
    found = {}
    of = budgets(section)
    for name, cost in files.items():
        budget = of.get(name, of[OTHERS])
        first = _FIRST_QUERY_S if name.startswith(_OF_SPARK) else 0.0
        if name.endswith(".py") and cost["cpu_s"] > ALLOWED * budget + first:
            found[name] = (
                f"{name} took {cost['cpu_s']:.1f} s of processor time, and its budget is {budget:g} s ({section})."
                f" Make its tests cheaper, or raise the budget in {FILE.relative_to(ROOT)} and say why"
            )
    return found


def alone(section: str, files: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
    """Run *files* once more, without others beside, and return what they cost: a test that waits may poll for long."""
    [marked] = (expression for expression, of in SECTIONS.items() if of == section)
    runs = json.loads(costs_file().read_text())
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", marked, *files], cwd=ROOT, check=False)
    found: Mapping[str, Mapping[str, float]] = json.loads(costs_file().read_text())[marked]["files"]
    runs[marked]["files"] |= found  # a run replaces its section
    costs_file().write_text(json.dumps(runs, indent=1))
    done.check_returncode()
    return found


def update(runs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Write the budgets that the files of *runs* need, those of other sections as they were."""
    sections = {section: dict(budgets(section)) if FILE.exists() else {} for section in SECTIONS.values()}
    for section, files in runs.items():
        others = sections[section].get(OTHERS, 3)
        dear = {name: math.ceil(cost["cpu_s"]) for name, cost in files.items() if name.endswith(".py")}
        sections[section] = {OTHERS: others} | {name: cost for name, cost in sorted(dear.items()) if cost > others}
    lines = [_HEAD]
    for section, of in sections.items():
        lines += [
            f"[{section}]",
            *(f"{json.dumps(name) if '.' in name else name} = {s:g}" for name, s in of.items()),
            "",
        ]
    FILE.write_text("\n".join(lines))


def main(*arguments: str) -> int:
    """Compare the costs of the last runs with the budgets, or write these."""
    runs = {
        SECTIONS[run]: found["files"] for run, found in json.loads(costs_file().read_text()).items() if run in SECTIONS
    }
    if arguments == ("--update",):
        update(runs)
        return 0
    faults: list[str] = []
    for section, files in runs.items():
        print(f"The dearest files of {section} tests, in seconds of processor:", *dearest(files), sep="\n")
        if dear := exceeded(section, files):
            print(*dear.values(), "Once more, alone:", sep="\n", flush=True)
            faults += exceeded(section, alone(section, dear)).values()
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
