"""What a nemesis committed, in order, and a validator of what a row's columns must be."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_conformance.validators import Row, SeenMark, SeenRow, Validator
from cdc_conformance.validators.events import Commit
from cdc_testing.nemesis_events import Write

from cdc_core import Timestamp

COLUMNS = ("id", "n", "note")
"""What every row has. `n` is another for each write."""


@dataclass
class Ledger:
    """Knows every committed version. `commits` are in order, as `PrefixValidator` and others take them.

    Columns have here the first names that they had.
    """

    topics: Mapping[str, str]
    """By table."""
    commits: list[Commit] = field(default_factory=list)
    times: list[Timestamp] = field(default_factory=list)
    """When each of the commits was, where the database tells; in order."""
    versions: dict[int, Row] = field(default_factory=dict)
    """By `n`, with all columns that were ever written."""
    fills: dict[str, str | int] = field(default_factory=dict)
    """What rows have in a column that was added with a default, by column, where nothing else was written."""
    names: dict[str, str] = field(default_factory=dict)
    """The first name of each column that was renamed."""
    _rows: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _filled: dict[str, tuple[str, Timestamp]] = field(default_factory=dict)
    """Topic and time of such a column, and of a dropped one, where the database tells."""
    _dropped: dict[str, tuple[str, Timestamp]] = field(default_factory=dict)
    _texts: dict[str, tuple[str, Timestamp]] = field(default_factory=dict)
    """The same of a column that became text."""
    _keys: dict[str, list[tuple[tuple[str, ...], Timestamp, Timestamp]]] = field(default_factory=dict)
    """The keys that a topic's table got, each with the first and the last moment at which that may have been."""

    def committed(self, writes: Sequence[Write], at: Timestamp | None) -> None:
        """Take a transaction's writes, in order, as committed; those of one row were locked until then."""
        last: dict[tuple[str, int], Row | None] = {}
        for write in writes:
            place = write.table, write.id
            if write.values is None:
                if self._rows.pop(place, None) is not None:
                    last[place] = None
                continue
            values = self.with_first_names(write.values)
            row = {"note": None, **self._rows.get(place, {}), "id": write.id, **values}
            self._rows[place] = row
            self.versions[row["n"]] = row
            last[place] = {name: row[name] for name in COLUMNS}
        if not last:
            return
        commit = [(self.topics[table], (id_,), row) for (table, id_), row in last.items()]
        if at is None:
            self.commits.append(commit)
            return
        place = bisect.bisect(self.times, at)  # a transaction may be committed before others and have a later time
        self.times.insert(place, at)
        self.commits.insert(place, commit)

    def state_at(self, timestamp: Timestamp) -> dict[str, dict[tuple[Any, ...], Row]]:
        """Return all rows as of *timestamp*, by topic and key."""
        state: dict[str, dict[tuple[Any, ...], Row]] = {topic: {} for topic in self.topics.values()}
        for commit in self.commits[: bisect.bisect(self.times, timestamp)]:
            for topic, key, row in commit:
                if row is None:
                    state[topic].pop(key, None)
                else:
                    state[topic][key] = row
        return state

    def whole_state_at(self, timestamp: Timestamp) -> dict[str, dict[tuple[Any, ...], Row]]:
        """Return all rows as of *timestamp* with all their columns, of which those that are null may be missing."""
        return {
            topic: {key: self._whole(topic, row, timestamp) for key, row in rows.items()}
            for topic, rows in self.state_at(timestamp).items()
        }

    def with_first_names(self, row: Mapping[str, Any]) -> Row:
        return {self.names.get(name, name): value for name, value in row.items()}

    def renamed(self, column: str, to: str) -> None:
        self.names[to] = self.names.get(column, column)

    def made_text(self, table: str, column: str, at: Timestamp | None) -> None:
        """A column of integers became text, and so did the values that it has."""
        column = self.names.get(column, column)
        if at is not None:
            self._texts[column] = self.topics[table], at
        for place, row in self._rows.items():
            if place[0] == table:
                self._rows[place] = _with_texts(row, {column})

    def key_changed(self, table: str, columns: Sequence[str], *, earliest: Timestamp, latest: Timestamp) -> None:
        """The table has another key since some moment between *earliest* and *latest*."""
        self._keys.setdefault(self.topics[table], []).append((tuple(columns), earliest, latest))

    def keys_at(self, topic: str, timestamp: Timestamp) -> set[tuple[str, ...]]:
        """Return the columns of each key that the topic's table may have had at *timestamp*."""
        found: set[tuple[str, ...]] = {("id",)}
        for columns, earliest, latest in self._keys.get(topic, []):
            if latest <= timestamp:
                found = {columns}
            elif earliest <= timestamp:
                found.add(columns)
        return found

    def filled(self, column: str, value: str | int, at: Timestamp | None, *, table: str) -> None:
        """A column was added that is *value* in every row."""
        self.fills[column] = value
        if at is not None:
            self._filled[column] = self.topics[table], at

    def dropped(self, table: str, column: str, at: Timestamp | None) -> None:
        """A column is gone, and with it its values."""
        column = self.names.get(column, column)
        if at is not None:
            self._dropped[column] = self.topics[table], at
        for place, row in self._rows.items():
            if place[0] == table:
                self._rows[place] = {name: value for name, value in row.items() if name != column}

    def _whole(self, topic: str, row: Row, timestamp: Timestamp) -> Row:
        filled = {name: self.fills[name] for name in _until(self._filled, topic, timestamp)}
        gone = _until(self._dropped, topic, timestamp)
        present = {name: value for name, value in {**filled, **self.versions[row["n"]]}.items() if name not in gone}
        return _with_texts(present, _until(self._texts, topic, timestamp))


class Projected:
    """Feeds a validator with rows of the columns that every row has: what schema changes do not touch."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    def note_row(self, row: SeenRow) -> None:
        self._validator.note_row(replace(row, before=_projected(row.before), after=_projected(row.after)))

    def note_resolved(self, mark: SeenMark) -> None:
        self._validator.note_resolved(mark)

    def failures(self) -> list[str]:
        return self._validator.failures()


class FirstNames:
    """Feeds a validator with rows whose columns have their first names."""

    def __init__(self, validator: Validator, ledger: Ledger) -> None:
        self._validator = validator
        self._ledger = ledger

    def note_row(self, row: SeenRow) -> None:
        images = [None if image is None else self._ledger.with_first_names(image) for image in (row.before, row.after)]
        self._validator.note_row(replace(row, before=images[0], after=images[1]))

    def note_resolved(self, mark: SeenMark) -> None:
        self._validator.note_resolved(mark)

    def failures(self) -> list[str]:
        return self._validator.failures()


class Without:
    """Feeds a validator with the rows of all topics but *topics*."""

    def __init__(self, validator: Validator, topics: Collection[str]) -> None:
        self._validator = validator
        self._topics = topics

    def note_row(self, row: SeenRow) -> None:
        if row.topic not in self._topics:
            self._validator.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        self._validator.note_resolved(mark)

    def failures(self) -> list[str]:
        return self._validator.failures()


class RowValidator:
    """Every row is one that was committed, with what was written; other columns have their default or are null."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._failures: list[str] = []

    def note_row(self, row: SeenRow) -> None:
        for which, image in (("after", row.after), ("before", row.before)):
            if image is None:
                continue
            written = self._ledger.versions.get(image["n"])
            wrong = written is None or any(
                str(value) != str(written.get(name, self._ledger.fills.get(name)))  # integers may have become text
                for name, value in self._ledger.with_first_names(image).items()
                if value is not None
            )
            if wrong:
                self._failures.append(f"{row.place} at {row.updated}: {which} is {image}, written was {written}")

    def note_resolved(self, mark: SeenMark) -> None:
        pass

    def failures(self) -> list[str]:
        return self._failures


def _until(columns: Mapping[str, tuple[str, Timestamp]], topic: str, timestamp: Timestamp) -> set[str]:
    return {name for name, (of, at) in columns.items() if of == topic and at <= timestamp}


def _with_texts(row: Row, texts: Iterable[str]) -> Row:
    return {**row, **{name: str(row[name]) for name in texts if row.get(name) is not None}}


def _projected(row: Row | None) -> Row | None:
    return None if row is None else {name: value for name, value in row.items() if name in COLUMNS}
