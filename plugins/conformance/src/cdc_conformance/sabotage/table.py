"""The table of saboteurs: what each one breaks, which tests failed, and whether that is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc_conformance.sabotage.cases import Case, Kind, Result, verdict

__all__ = ["Row", "lines", "rows"]

_HEAD = ("KIND", "PROMISE", "SABOTEUR", "FAILED", "VERDICT", "MISTAKE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case in the table. `problem` is empty when nothing is wrong."""

    case: Case
    saboteur: str
    mistake: str
    failed: str
    problem: str
    reasons: tuple[str, ...] = ()
    """The failure texts of the tests that should have passed."""


def rows(cases: Sequence[Case], results: Mapping[Case, Result], kinds: Mapping[str, Kind]) -> list[Row]:
    """Return a row for each case."""
    return [_row(case, results.get(case), kinds[case.kind]) for case in cases]


def lines(found: Sequence[Row]) -> Iterator[str]:
    """Yield the table, then what is wrong, then the counts."""
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
    counts = f"{saboteurs} saboteurs and {len(found) - saboteurs} references"
    yield f"{counts}: {f'{len(wrong)} wrong' if wrong else 'all right'}"


def _row(case: Case, result: Result | None, kind: Kind) -> Row:
    saboteur, mistake = kind.saboteur(case)
    failed = [] if result is None else result.failed()
    allowed = {case.promise, *(kind.summaries if case.promise else ())}
    unwanted = [test for test in failed if test not in allowed]
    return Row(
        case=case,
        saboteur=saboteur,
        mistake=mistake,
        failed="its own" if case.promise in failed and not unwanted else ", ".join(failed) or "-",
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
        row.mistake,
    )
