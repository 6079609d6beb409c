"""The table of saboteurs: who breaks what, what failed, and whether that is as it must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc_conformance.sabotage.cases import Case, Kind, Result, verdict

__all__ = ["Row", "lines", "rows"]

_HEAD = ("KIND", "PROMISE", "SABOTEUR", "FAILED", "VERDICT", "STANDS FOR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case, as it is shown; `problem` is empty when it is as it must be."""

    case: Case
    saboteur: str
    stands_for: str
    failed: str
    problem: str
    reasons: tuple[str, ...] = ()
    """What the tests said that should not have failed."""


def rows(cases: Sequence[Case], results: Mapping[Case, Result], kinds: Mapping[str, Kind]) -> list[Row]:
    """Return a row for each case."""
    return [_row(case, results.get(case), kinds[case.kind]) for case in cases]


def lines(found: Sequence[Row]) -> Iterator[str]:
    """Yield the table, what is wrong below it, and what it came to."""
    cells = [_HEAD, *(_cells(row) for row in found)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD) - 1)]
    for line in cells:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
    wrong = [row for row in found if row.problem]
    yield ""
    for row in wrong:
        yield f"{row.case} ({row.saboteur}): {row.problem}"
        yield from (f"    {reason}" for reason in row.reasons)
    saboteurs = sum(1 for row in found if row.case.promise)
    yield f"{saboteurs} saboteurs, {len(found) - saboteurs} references: " + (
        f"{len(wrong)} of them not as they must be" if wrong else "all as they must be"
    )


def _row(case: Case, result: Result | None, kind: Kind) -> Row:
    saboteur, stands_for = kind.saboteur(case)
    failed = [] if result is None else result.failed()
    allowed = {case.promise, *(kind.summaries if case.promise else ())}
    unwanted = [test for test in failed if test not in allowed]
    return Row(
        case=case,
        saboteur=saboteur,
        stands_for=stands_for,
        failed="that one" if case.promise in failed and not unwanted else ", ".join(failed) or "-",
        problem=verdict(case, kind, result),
        reasons=tuple(f"{test}: {' '.join(result.reasons[test].split())[:400]}" for test in unwanted if result),
    )


def _cells(row: Row) -> tuple[str, ...]:
    failed = row.failed if row.failed.count(",") < 1 else f"{row.failed.count(',') + 1} tests"
    return (
        row.case.kind,
        row.case.promise or "(all: reference)",
        row.saboteur,
        failed,
        "WRONG" if row.problem else "ok",
        row.stands_for,
    )
