"""`python -m cdc_conformance.sabotage`: shows that the test of every promise fails when the promise is broken."""

from __future__ import annotations

import os
import sys
import time

import click

from cdc_conformance.sabotage.cases import HOMES, chosen, kinds, lines, verdict
from cdc_conformance.sabotage.running import run


@click.command()
@click.option("--kind", "only", type=click.Choice(list(HOMES)), multiple=True, help="Run only saboteurs of this kind.")
@click.option("--only", "promise", metavar="PROMISE", default="", help="Run only the saboteur of this promise.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Number of processes.")
@click.option("--limit", "limit_s", metavar="SECONDS", default=20.0, help="Time limit for each test.")
def main(only: tuple[str, ...], promise: str, jobs: int, limit_s: float) -> None:
    """Run each suite against every saboteur. Each saboteur must fail exactly the test of its own promise.

    The reference components must pass every test. What differs runs again, alone. If it still does, the status is 1.
    """
    begun = time.monotonic()
    of_kind = kinds(only=only)
    cases = [case for kind in of_kind.values() for case in kind.cases()]
    if promise:
        cases = chosen(cases, promise)
        if not cases:
            raise click.UsageError(f"there is no promise '{promise}' and no saboteur of it")
    with_saboteur = [case for case in cases if not case.promise or case.promise in of_kind[case.kind].saboteurs]
    results = run(with_saboteur, homes=HOMES, jobs=jobs, limit_s=limit_s)
    problems = {case: verdict(case, of_kind[case.kind], results.get(case)) for case in cases}
    wrong = [case for case in with_saboteur if problems[case]]  # again, alone: a busy machine changes what a test sees
    results |= run(wrong, homes=HOMES, jobs=1, limit_s=limit_s)
    problems |= {case: verdict(case, of_kind[case.kind], results.get(case)) for case in wrong}
    for line in lines(results, problems, of_kind):
        click.echo(line)
    click.echo(f"{time.monotonic() - begun:.0f} s")
    sys.exit(1 if any(problems.values()) else 0)


if __name__ == "__main__":
    main()
