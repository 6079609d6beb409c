"""Rows of correct histories that can be spoiled, how validators describe them, and the ways to spoil them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from cdc_conformance.validators import (
    BeforeAfterValidator,
    CompletenessValidator,
    CountValidator,
    CutValidator,
    FingerprintValidator,
    KeyInValueValidator,
    MvccValidator,
    OrderValidator,
    PrefixValidator,
    ResolvedValidator,
    Row,
    SeenRow,
    TopicValidator,
    Validator,
    VersionValidator,
)
from cdc_conformance.validators.events import row_text
from cdc_testing.histories import TOTAL, Event, History, invariant

from cdc_core import Endpoint, Timestamp

__all__ = ["SABOTAGES", "Event", "Expected", "Sabotage", "Spot", "balance", "sabotage", "spots", "strict_validators"]

Expected = dict[str, list[str]]
"""The failures that validators must report, by the name of the validator."""


@dataclass
class Spot:
    """One row of a history, and how validators describe it."""

    history: History
    step: int
    endpoint: Endpoint
    index: int

    @property
    def rows(self) -> list[SeenRow]:
        """The rows of the same step and endpoint."""
        return self.history.steps[self.step].rows[self.endpoint]

    @property
    def row(self) -> SeenRow:
        return self.rows[self.index]

    @property
    def resolved(self) -> Timestamp:
        return self.history.steps[self.step].resolved

    @property
    def described(self) -> str:
        return f"{self.row.place} updated {self.row.updated}"

    @property
    def is_from_log(self) -> bool:
        """Whether the row comes from the log, after the scan and the step that follows it."""
        return self.step > 1

    @property
    def versions(self) -> list[SeenRow]:
        """Every version of the row's key."""
        all_rows = (row for step in self.history.steps for rows in step.rows.values() for row in rows)
        return [row for row in all_rows if (row.topic, row.key) == (self.row.topic, self.row.key)]

    @property
    def following(self) -> SeenRow | None:
        return next((row for row in self.versions if row.updated > self.row.updated), None)

    @property
    def is_only_version(self) -> bool:
        """Whether the step has only this version of the key."""
        return [row.key for row in self.rows].count(self.row.key) == 1

    @property
    def gain(self) -> int:
        """What the row adds to the sum."""
        return balance(self.row.after) - balance(self.row.before)

    @property
    def until(self) -> Timestamp:
        """The time of the key's next version, or the end of time."""
        return self.following.updated if self.following else Timestamp(1 << 62)

    def never_arrived(self, *, column: bool) -> str:
        after = self.row.after
        shown = "'deleted'" if after is None else str(after["n"]) if column else row_text(after)
        committed = [
            (time, row)
            for time, commit in self.history.commits
            for topic, key, row in commit
            if (topic, key) == (self.row.topic, self.row.key)
        ]
        number = sum(time <= self.row.updated for time, _ in committed)
        return f"{self.row.name}: version {shown}, {number} of {len(committed)}, never arrived"

    def differs(self, found: Row | None, expected: Row | None) -> str:
        return f"{self.row.name}: is {row_text(found)}, expected {row_text(expected)}"

    def no_commit(self, found: Row | None, expected: Row | None, *, moment: str = "", name: str = "") -> str:
        made = sum(time <= self.row.updated for time, _ in self.history.commits)
        return (
            f"{moment or f'at {self.row.updated}'}: the tables match no commit; after {made} of"
            f" {len(self.history.commits)} commits {name or self.row.name} was {row_text(expected)}, but is"
            f" {row_text(found)}"
        )

    def shown(self, found: Row | None, expected: Row | None) -> Expected:
        """Return what is said of tables that have *found* from the row's time on."""
        return {
            "fingerprint": [f"at {self.row.updated}: {self.differs(found, expected)}"],
            "prefix": [self.no_commit(found, expected)],
        }

    def lost(self) -> Expected:
        """Remove the row, and return what is said of that besides `shown`."""
        said = {
            "cuts": self.totals(TOTAL - self.gain, until=self.until),
            "completeness": [self.never_arrived(column=False)],
            "counted completeness": [self.never_arrived(column=True)],
        }
        del self.rows[self.index]
        return said

    def totals(self, total: int, *, until: Timestamp) -> list[str]:
        """Return what the auditor reports while the sum is wrong, from the row's time on."""
        found = []
        for number, step in enumerate(self.history.steps):
            times = {row.updated for rows in step.rows.values() for row in rows} if number else set()
            moments = [(time, f"at {time}") for time in sorted(times)]
            moments.append((step.resolved, f"at resolved {step.resolved}"))
            found += [f"{when}: the total is {total}" for time, when in moments if self.row.updated <= time < until]
        return found

    def unused_time(self) -> Timestamp | None:
        """Return the time after the row's if nothing was committed then and the step's mark covers it."""
        time = self.row.updated.next()
        return time if time <= self.resolved and time not in dict(self.history.commits) else None


def spots(seed: int) -> Iterator[Spot]:
    """Yield rows of histories, in random order within each. Every spot has a history that can be spoiled."""
    for number in count(seed * 1000):
        history = History(number)
        places = [
            (step, endpoint, index)
            for step in range(len(history.steps))
            for endpoint, rows in history.steps[step].rows.items()
            for index in range(len(rows))
        ]
        history.chance.shuffle(places)
        for place in places:
            yield Spot(history, *place)


def balance(row: Row | None) -> int:
    return 0 if row is None else int(row["balance"])


Sabotage = Callable[[Spot], tuple[list[Event], Expected] | None]
SABOTAGES: dict[str, Sabotage] = {}


def sabotage(function: Sabotage) -> Sabotage:
    """Register a way to spoil a history. It returns None if the row is not suitable."""
    SABOTAGES[function.__name__] = function
    return function


def strict_validators(history: History) -> dict[str, Validator]:
    """Return every validator by name."""
    commits = [commit for _, commit in history.commits]
    places = history.endpoints
    return {
        "order": OrderValidator(),
        "before_after": BeforeAfterValidator(history.as_of),
        "before_after_seen": BeforeAfterValidator(),
        "fingerprint": FingerprintValidator(history.state_at, endpoints=places),
        "prefix": PrefixValidator(commits, endpoints=places, whole=True),
        "cuts": CutValidator(invariant, endpoints=places, every_timestamp=True),
        "resolved": ResolvedValidator(places),
        "mvcc": MvccValidator(),
        "key_in_value": KeyInValueValidator({"t": ["id"], "u": ["id"]}),
        "topic": TopicValidator(["t", "u"], in_value=True),
        "completeness": CompletenessValidator(commits, started=history.started),
        "counted completeness": CompletenessValidator(commits, started=history.started, column="n"),
        "versions of t": VersionValidator("t", "n"),
        "versions of u": VersionValidator("u", "n"),
        "count": CountValidator(least_rows=10, least_marks=len(history.steps)),
    }
