"""The resolved timestamp of each endpoint."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenMark, SeenRow
from cdc_core import Endpoint, Timestamp

__all__ = ["Marks", "speaks_for"]


@dataclass(slots=True)
class Marks:
    """The greatest mark of each endpoint so far."""

    at: dict[Endpoint, Timestamp] = field(default_factory=dict)

    def note(self, mark: SeenMark) -> None:
        self.at[mark.endpoint] = max(mark.resolved, self.at.get(mark.endpoint, Timestamp()))

    def over(self, row: SeenRow) -> Timestamp:
        """Return the greatest mark that covers the place of *row*; zero if there is none."""
        return max(self.at.get(endpoint, Timestamp()) for endpoint in speaks_for(row.topic, row.partition))

    def least(self, endpoints: Collection[Endpoint]) -> Timestamp:
        """Return the timestamp up to which all *endpoints* are resolved; zero while one of them has no mark."""
        return min((self.at.get(endpoint, Timestamp()) for endpoint in endpoints), default=Timestamp())


def speaks_for(topic: str, partition: int | None) -> tuple[Endpoint, ...]:
    """Return every endpoint whose marks cover rows that arrive in *partition* of *topic*."""
    return ((topic, partition), (topic, None), (None, None))
