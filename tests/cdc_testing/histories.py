"""Random correct histories: the commits of a source, and the events that a consumer of its changefeed may see.

Every commit moves money between two accounts, of topic t (ids 1 to 6) or u (ids 11 to 14), so the sum is constant. `n`
counts the versions of an account, and continues after a delete.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_conformance.validators import Commit, Key, Row, SeenMark, SeenRow

from cdc_core import Endpoint, Timestamp

Event = SeenRow | SeenMark
Id = tuple[str, Key]
TOTAL = 1000
TOPICS = {"t": range(1, 7), "u": range(11, 15)}


@dataclass
class Step:
    """The rows of each endpoint between two resolved marks, and the second mark."""

    rows: dict[Endpoint, list[SeenRow]]
    resolved: Timestamp

    def events(self) -> list[Event]:
        """Return the rows of one endpoint after the other, and then the marks."""
        marks = [SeenMark(topic=topic, partition=number, resolved=self.resolved) for topic, number in self.rows]
        return [*(row for rows in self.rows.values() for row in rows), *marks]


@dataclass
class History:
    """The history of *seed*. With *files* all topics have one order, otherwise each has two partitions.

    `commits` holds the time of each commit. The first `started` commits were made before the scan.
    """

    seed: int
    files: bool = False
    commits: list[tuple[Timestamp, Commit]] = field(default_factory=list)
    started: int = 0
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._versions: dict[Id, int] = {}
        self._wall = 10**16
        accounts: dict[Id, Row] = {}
        for topic, ids in TOPICS.items():
            for id_ in ids:
                accounts[topic, (id_,)] = {"id": id_, "n": self._next(topic, id_), "balance": TOTAL // 10}
        self._commit([(*id_, row) for id_, row in accounts.items()])
        for _ in range(self.chance.randint(1, 5)):
            self._transfer()
        self.started = len(self.commits)
        self._scan()
        for _ in range(8):
            first = len(self.commits)
            for _ in range(self.chance.randint(1, 5)):
                self._transfer()
            self._step(first)

    @property
    def endpoints(self) -> list[Endpoint]:
        return [(None, None)] if self.files else [(topic, number) for topic in TOPICS for number in (0, 1)]

    def as_of(self, topic: str, key: Key, when: Timestamp) -> Row | None:
        return self.state_at(when).get(topic, {}).get(key)

    def state_at(self, when: Timestamp) -> Mapping[str, Mapping[Key, Row]]:
        state: dict[str, dict[Key, Row]] = {topic: {} for topic in TOPICS}
        for time, commit in self.commits:
            if time <= when:
                for topic, key, row in commit:
                    if row is None:
                        del state[topic][key]
                    else:
                        state[topic][key] = row
        return state

    def events(self, steps: Sequence[Step] | None = None) -> list[Event]:
        """Return all events in a simple order, without repeats."""
        return [event for step in (self.steps if steps is None else steps) for event in step.events()]

    def with_restarts(self) -> list[Event]:
        """Return all events, endpoints interleaved, of a changefeed that is killed several times."""
        arrivals: dict[Endpoint, list[Event]] = {endpoint: [] for endpoint in self.endpoints}
        for number, step in enumerate(self.steps):
            while self.chance.random() < 0.4:
                repeated = self.steps[max(0, number - 1) : number + 1] if number > 1 else [step]
                for endpoint, arrived in arrivals.items():
                    rows = [row for again in repeated for row in again.rows[endpoint]]
                    whole = sum(len(again.rows[endpoint]) for again in repeated[:-1])
                    arrived += rows[: self.chance.randint(whole, len(rows))]
            marked = self.chance.random() < 0.3
            for endpoint, arrived in arrivals.items():
                arrived += step.rows[endpoint]
                mark = SeenMark(topic=endpoint[0], partition=endpoint[1], resolved=step.resolved)
                arrived += [mark] * (1 + (marked and self.chance.random() < 0.5))
        return self.interleaved(arrivals)

    def interleaved(self, arrivals: Mapping[Endpoint, Sequence[Event]]) -> list[Event]:
        """Return the events of all endpoints in a random order that keeps the order of each endpoint."""
        turns = [endpoint for endpoint, events in arrivals.items() for _ in events]
        self.chance.shuffle(turns)
        rest = {endpoint: iter(events) for endpoint, events in arrivals.items()}
        return [next(rest[endpoint]) for endpoint in turns]

    def endpoint_of(self, topic: str, key: Key) -> Endpoint:
        return (None, None) if self.files else (topic, key[0] % 2)

    def row(self, topic: str, key: Key, when: Timestamp, *, scanned: bool = False) -> SeenRow:
        """Return the event for the version that the source had at *when*."""
        return SeenRow(
            topic=topic,
            partition=self.endpoint_of(topic, key)[1],
            key=key,
            after=self.as_of(topic, key, when),
            before=None if scanned else self.as_of(topic, key, when.prev()),
            updated=when,
            mvcc=when,
            key_in_value=key,
            topic_in_value=topic,
        )

    def rows(self, first: int) -> dict[Endpoint, list[SeenRow]]:
        """Return the rows of the commits from number *first* on, by endpoint."""
        found: dict[Endpoint, list[SeenRow]] = {endpoint: [] for endpoint in self.endpoints}
        for when, commit in self.commits[first:]:
            for topic, key, _ in commit:
                found[self.endpoint_of(topic, key)].append(self.row(topic, key, when))
        return found

    def _scan(self) -> None:
        """Scan in two rounds, with the log up to the second snapshot between them."""
        even = {endpoint: [row for row in rows if row.key[0] % 4 < 2] for endpoint, rows in self._scanned().items()}
        first = len(self.commits)
        for _ in range(self.chance.randint(0, 3)):
            self._transfer()
        log = self.rows(first)
        odd = {endpoint: [row for row in rows if row.key[0] % 4 >= 2] for endpoint, rows in self._scanned().items()}
        self.steps.append(Step({place: [*even[place], *log[place], *odd[place]] for place in even}, self._tick()))

    def _scanned(self) -> dict[Endpoint, list[SeenRow]]:
        now = self._tick()
        found: dict[Endpoint, list[SeenRow]] = {endpoint: [] for endpoint in self.endpoints}
        for topic, rows in self.state_at(now).items():
            for key in rows:
                found[self.endpoint_of(topic, key)].append(self.row(topic, key, now, scanned=True))
        return found

    def _step(self, first: int) -> None:
        rows = self.rows(first)
        last = self.commits[-1][0] if len(self.commits) > first else self._tick()
        self.steps.append(Step(rows, self.chance.choice([last, self._tick()])))

    def _transfer(self) -> None:
        """Move money between two accounts. This may open the one and close the other."""
        state = self.state_at(Timestamp(self._wall, 9))
        ids = [(topic, id_) for topic, ids in TOPICS.items() for id_ in ids]
        giver = self.chance.choice([(topic, id_) for topic, id_ in ids if (id_,) in state[topic]])
        taker = self.chance.choice([id_ for id_ in ids if id_ != giver])
        there, here = state[giver[0]][giver[1],], state[taker[0]].get((taker[1],))
        amount = there["balance"] if self.chance.random() < 0.3 else self.chance.randint(0, there["balance"])
        closed = amount == there["balance"] and self.chance.random() < 0.7
        given: Row | None = None
        if not closed:
            given = {"id": giver[1], "n": self._next(*giver), "balance": there["balance"] - amount}
        taken = {"id": taker[1], "n": self._next(*taker), "balance": (here["balance"] if here else 0) + amount}
        self._commit([(giver[0], (giver[1],), given), (taker[0], (taker[1],), taken)])

    def _next(self, topic: str, id_: int) -> int:
        number = self._versions[topic, (id_,)] = self._versions.get((topic, (id_,)), 0) + 1
        return number

    def _commit(self, commit: Commit) -> None:
        last = self.commits[-1][0] if self.commits else Timestamp()
        same_wall = last.wall == self._wall and self.chance.random() < 0.3
        self.commits.append((last.next() if same_wall else self._tick(), commit))

    def _tick(self) -> Timestamp:
        self._wall += self.chance.randint(5, 15)
        return Timestamp(self._wall)


def invariant(state: Mapping[str, Mapping[Key, Mapping[str, Any]]]) -> str | None:
    total = sum(row["balance"] for rows in state.values() for row in rows.values())
    return None if total == TOTAL else f"the total is {total}"
