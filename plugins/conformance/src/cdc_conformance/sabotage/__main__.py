"""`python -m cdc_conformance.sabotage`: shows that every promise's test fails with whoever breaks the promise."""

from __future__ import annotations

import os
import sys
import time

import click

from cdc_conformance.sabotage.cases import HOMES, chosen, kinds
from cdc_conformance.sabotage.running import run
from cdc_conformance.sabotage.table import lines, rows

__all__ = ["main"]


@click.command()
@click.option("--kind", "only", type=click.Choice(list(HOMES)), multiple=True, help="Saboteurs of this kind only.")
@click.option("--only", "promise", metavar="PROMISE", default="", help="The saboteur of this promise only.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes at a time.")
@click.option("--limit", "limit_s", metavar="SECONDS", default=20.0, help="How long one test may take.")
def main(only: tuple[str, ...], promise: str, jobs: int, limit_s: float) -> None:
    """Run each suite against every saboteur: each must fail exactly the test of its own promise.

    The reference components must pass everything with nothing skipped. Exit status 1 when one of this does not hold.
    """
    begun = time.monotonic()
    of_kind = kinds(only=only)
    cases = [case for kind in of_kind.values() for case in kind.cases()]
    if promise:
        cases = chosen(cases, promise)
        if not cases:
            raise click.UsageError(f"there is neither a promise nor a saboteur called '{promise}'")
    with_saboteur = [case for case in cases if not case.promise or case.promise in of_kind[case.kind].saboteurs]
    results = run(with_saboteur, homes=HOMES, jobs=jobs, limit_s=limit_s)
    found = rows(cases, results, of_kind)
    for line in lines(found):
        click.echo(line)
    click.echo(f"{time.monotonic() - begun:.0f} s")
    sys.exit(1 if any(row.problem for row in found) else 0)


if __name__ == "__main__":
    main()
