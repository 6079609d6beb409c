"""The token of a changefeed with several sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.rangefeed_values import Token
from cdc_core.timestamp import Timestamp

_SHARDS = "cdc_shards"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """How far one source is. `token` is its rangefeed's own, None before it has one.

    `latest` is the greatest timestamp of its span marks, None before the first step is saved. Timestamps of other
    sources are of other clocks, and must not hold up those of this one. `resolved` is what is resolved of all its
    tables. `scanned` is the greatest timestamp of its marks that resolved nothing, such as those of a scan. `databases`
    has the names that its databases have in the changefeed, where those differ.
    """

    token: Token | None = None
    latest: Timestamp | None = None
    resolved: Timestamp = Timestamp()
    scanned: Timestamp = Timestamp()
    databases: Mapping[str, str] = field(default_factory=dict)

    def after(self, after: Timestamp) -> Timestamp:
        """Return what the next step of the source must exceed; *after* is that of all sources together."""
        return after if self.latest is None else self.latest

    def to_json(self) -> dict[str, Any]:
        return {
            "token": self.token,
            "latest": None if self.latest is None else str(self.latest),
            "resolved": str(self.resolved),
            "scanned": str(self.scanned),
            "databases": dict(self.databases),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ShardState:
        latest = value["latest"]
        return cls(
            token=value["token"],
            latest=None if latest is None else Timestamp.parse(latest),
            resolved=Timestamp.parse(value["resolved"]),
            scanned=Timestamp.parse(value["scanned"]),
            databases=value["databases"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedToken:
    """`started` is false for an intent. `away` are the sources that could not be reached.

    `settled` is the last high-water mark at which every source had a state of its own: not one between the beginning of
    a scan and the timestamp of its rows. Consumers may be told this one.
    """

    shards: tuple[ShardState, ...]
    started: bool = True
    away: tuple[int, ...] = ()
    settled: Timestamp = Timestamp()

    def with_tokens(self, tokens: Iterable[Token | None]) -> ShardedToken:
        """Return this token with those of the sources."""
        pairs = zip(self.shards, tokens, strict=True)
        return replace(self, shards=tuple(replace(state, token=token) for state, token in pairs))

    def with_marks(
        self,
        latest: Sequence[Timestamp],
        resolved: Sequence[Timestamp],
        scanned: Sequence[Timestamp],
        *,
        before: Timestamp,
        high_water: Timestamp,
    ) -> ShardedToken:
        """Return this token after a step whose marks reached *latest*, by source; *resolved* is what is resolved now.

        *scanned* is what those marks reached that resolved nothing. *before* is the greatest timestamp of all marks
        before the step, *high_water* the least of what is resolved after it.
        """
        shards = tuple(
            replace(
                state, latest=max(state.after(before), reached), resolved=done, scanned=max(state.scanned, unresolved)
            )
            for state, reached, done, unresolved in zip(self.shards, latest, resolved, scanned, strict=True)
        )
        whole = all(high_water >= state.scanned for state in shards)
        return replace(self, shards=shards, settled=high_water if whole else self.settled)

    def to_json(self) -> Token:
        return {
            _SHARDS: [state.to_json() for state in self.shards],
            "started": self.started,
            "away": list(self.away),
            "settled": str(self.settled),
        }

    @classmethod
    def from_json(cls, value: Token) -> ShardedToken:
        return cls(
            shards=tuple(ShardState.from_json(state) for state in value[_SHARDS]),
            started=value["started"],
            away=tuple(value["away"]),
            settled=Timestamp.parse(value["settled"]),
        )

    @staticmethod
    def targets(targets: Sequence[str | Token | None]) -> Token:
        """Return where each source is to be moved, as `ShardedRangefeed.move` takes it; None where it stays."""
        return {_SHARDS: list(targets)}

    @staticmethod
    def targets_in(to: str | Token, *, count: int) -> Sequence[str | Token | None]:
        """Return where each of *count* sources is to be moved: *to* was made by `targets`, or means all of them.

        Raises: ConfigError when it is a position, which belongs to one source.
        """
        if isinstance(to, dict) and _SHARDS in to:
            targets: Sequence[str | Token | None] = to[_SHARDS]
            return targets
        if not isinstance(to, str) or not (to == "now" or Timestamp.is_text(to)):
            raise ConfigError(
                "a position belongs to a single source; name that source, or move all sources to a timestamp"
            )
        return [to] * count

    @classmethod
    def found_in(cls, value: Token) -> ShardedToken | None:
        """Return the token in *value*; None when that is the token of a single source."""
        return cls.from_json(value) if _SHARDS in value else None
