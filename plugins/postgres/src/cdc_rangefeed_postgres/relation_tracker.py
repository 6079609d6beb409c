"""Tracks which version of its table each row of the log has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cdc_core import RetryableRangefeedError
from cdc_rangefeed_postgres.fields import Ints, Messages
from cdc_rangefeed_postgres.relations import Relation, relation_columns, shape
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["RelationTracker"]

_RELATION = ord("R")


class RelationTracker:
    """Matches the Relation messages of a slice with the listed versions of each table, forward only.

    A Relation message is matched when a row of the slice follows it. Messages in transactions before the slice may
    announce versions that are not listed. Tables without any listed version are published but not watched, and skipped.
    """

    def __init__(self, versions: Mapping[int, Sequence[TableVersion]]) -> None:
        self._versions = versions
        self._current = dict.fromkeys(versions, 0)
        self._announced: dict[int, Relation] = {}
        self._matched: dict[int, Relation] = {}

    def groups(self, messages: Messages, rows: Ints) -> Iterator[tuple[TableVersion, Ints]]:
        """Group *rows*: yield each version with its messages, the versions of a table in log order.

        Exhaust the iterator before the next call. Raises: RetryableRangefeedError.
        """
        at = np.flatnonzero(messages.kinds == _RELATION)
        announced: dict[int, list[tuple[int, Relation]]] = {}
        for index in at.tolist():
            relation = relation_columns(messages.message(index))
            announced.setdefault(relation.relid, []).append((index, relation))
        relids = messages.numbers(">u4", messages.starts[rows] + 1)
        for relid in np.unique(relids).tolist():
            if not self.watches(relid):
                continue
            group: list[Ints] = []
            version = None
            for shown, part in self._parts(relid, announced.get(relid, []), rows[relids == relid]):
                following = self._match(relid, shown)
                if version is not None and following is not version:
                    yield version, np.concatenate(group)
                    group = []
                version = following
                group.append(part)
            if version is not None:
                yield version, np.concatenate(group)
        for relid, relations in announced.items():
            self._announced[relid] = relations[-1][1]

    def watches(self, relid: int) -> bool:
        """Return whether rows of this table are wanted."""
        return relid in self._versions

    def name(self, relid: int) -> str:
        """Return the name of a table that is watched, for messages."""
        return str(self._versions[relid][0].schema.name)

    def _parts(
        self, relid: int, announced: Sequence[tuple[int, Relation]], rows: Ints
    ) -> Iterator[tuple[Relation | None, Ints]]:
        """Yield the rows of one table that follow each announcement, if there are any."""
        relations = [self._announced.get(relid), *(relation for _, relation in announced)]
        bounds = np.searchsorted(rows, [index for index, _ in announced])
        for relation, part in zip(relations, np.split(rows, bounds), strict=True):
            if len(part):
                yield relation, part

    def _match(self, relid: int, relation: Relation | None) -> TableVersion:
        versions = self._versions.get(relid, ())
        if relation is not None:
            if self._matched.get(relid) is relation:
                return versions[self._current[relid]]
            ahead = range(self._current.get(relid, 0), len(versions))
            # Versions from the log say what the replica identity has, versions from the catalog do not.
            same = [number for number in ahead if versions[number].columns == relation.columns]
            for number in same or [number for number in ahead if shape(versions[number].columns) == relation.shape]:
                self._current[relid] = number
                self._matched[relid] = relation
                return versions[number]
        raise RetryableRangefeedError(
            f"the schema of table {self.name(relid)} changed while its log was read", outage=False
        )
