"""What a run retries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

from cdc_core.options import counted

__all__ = ["Retrying"]

_TIMES = ("since", "next_attempt_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """What has failed again and again, `failures` times since the last saved step: `error` is the latest. No secret.

    It is there until a step is saved, also while an attempt runs. `next_attempt_at` is None then.
    """

    error: str
    since: datetime
    failures: int = 1
    next_attempt_at: datetime | None = None

    @classmethod
    def after(cls, before: Self | None, error: str) -> Self:
        """Return what is retried when *error* comes after *before*."""
        if before is None:
            return cls(error=error, since=datetime.now(UTC).replace(microsecond=0))
        return cls(error=error, since=before.since, failures=before.failures + 1)

    @property
    def text(self) -> str:
        """One line for people."""
        return f"retrying {self.reason}"

    @property
    def reason(self) -> str:
        """The same without its first word."""
        at = self.next_attempt_at
        following = "an attempt is running" if at is None else f"next attempt at {_shown(at)}"
        failed = counted(self.failures, "failure")
        return f"since {_shown(self.since)}, after {failed}: {self.error}; {following}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, for `from_json`."""
        times = {name: at.isoformat(timespec="seconds") for name in _TIMES if (at := getattr(self, name))}
        return asdict(self) | times

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        times = {name: datetime.fromisoformat(at) for name in _TIMES if (at := value.get(name))}
        return cls(**{**value, **times})


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
