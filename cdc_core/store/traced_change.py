"""What became of one change that someone traces, from the task that reads it to whoever asks the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cdc_core.timestamp import Timestamp

STAGES = ("planned", "read", "encoded", "emitted", "acknowledged", "saved", "resolved")
"""What a change passes, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedChange:
    """One change on its way. Holds its key and no other value of the row."""

    table: str
    key: str
    """As `key_json` gives it."""
    op: str
    updated: Timestamp
    position: str | None
    """That of the commit at the source, as far as the source knows it."""
    step: int
    moments: Mapping[str, float]
    """When it reached each stage, in seconds since 1970 by the clock of the process that did that."""
    nth: int = 0
    """Tells it from other changes of its key at its position."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """Where at the destination it is, as far as the sink knows that."""
    dead_letter: str | None = None
    """What refused the change, if it is among the dead letters."""
    left_out: bool = False
    """Whether the query, or the section of the table, does not deliver it."""
    marks: bool = False
    """Whether a resolved mark follows when it is saved."""
    traces: tuple[int, ...] = ()
    """Numbers of the traces that look for it. The store keeps the changes of each trace without it."""

    @property
    def identity(self) -> str:
        """The same when the step of the change is repeated."""
        of_commit = f"{self.table} {self.key} {self.position or self.updated}"
        return f"{of_commit} {self.nth}" if self.nth else of_commit

    @property
    def complete(self) -> bool:
        """Whether no stage will follow: `resolved`, or `saved` where there are no resolved marks."""
        return "resolved" in self.moments or ("saved" in self.moments and not self.marks)

    def reached(self, moments: Mapping[str, float]) -> Self:
        """Return the change as it is after *moments*, by stage."""
        return replace(self, moments={**self.moments, **moments})

    def after_s(self, stage: str) -> float:
        """Return how long after its commit the change reached *stage*; a scanned row's commit is that of its scan."""
        return self.moments[stage] - self.updated.wall / 1e9

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values, for `from_json`."""
        return {
            **{name: getattr(self, name) for name in ("table", "key", "nth", "op", "position", "step", "marks")},
            "updated": str(self.updated),
            **self.moments,
            **{name: value for name in ("place", "dead_letter", "left_out") if (value := getattr(self, name))},
            **({"traces": list(self.traces)} if self.traces else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the change that *value* is, also of an earlier version."""
        return cls(
            **{name: value[name] for name in ("table", "key", "op", "position", "step")},
            **{name: value[name] for name in ("nth", "place", "dead_letter", "left_out", "marks") if name in value},
            updated=Timestamp.parse(value["updated"]),
            moments={stage: value[stage] for stage in STAGES if stage in value},
            traces=tuple(value.get("traces", ())),
        )
