"""The history of several sources."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from cdc_core.errors import CdcError, RetryableError
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Token
from cdc_core.shards.shard import Shard, on_all, on_each, shards_of
from cdc_core.shards.token import ShardedToken
from cdc_core.source_history import SourceHistory

_AGAIN_S = 10.0
"""A source that did not answer is asked again after this long: each question may take as long as a connection does."""


class ShardedHistory(SourceHistory):
    """See `SourceHistory`. A source that cannot be reached keeps its history, and the notice says so."""

    def __init__(self, context: RangefeedContext, part: type[SourceHistory], sources: Sequence[str]) -> None:
        super().__init__(context)
        self._shards = shards_of(context, sources)
        self._histories = [part(shard.context) for shard in self._shards]
        self._failed: dict[int, RetryableError] = {}
        self._again_at = [0.0] * len(self._shards)
        self._away: tuple[int, ...] = ()
        self._metrics: dict[int, Mapping[str, float]] = {}
        self._released = False

    def release(self, token: Token) -> None:
        self._released = True
        found, now = ShardedToken.from_json(token), time.monotonic()
        self._away = found.away

        for index in self._away:
            self._failed.pop(index, None)
            self._metrics.pop(index, None)

        def one(shard: Shard) -> None:
            own = found.shards[shard.index].token
            assert own is not None
            history = self._histories[shard.index]
            history.release(own)
            self._metrics[shard.index] = history.metrics()

        asked = [
            shard for shard in self._shards if shard.index not in self._away and self._again_at[shard.index] <= now
        ]
        for shard, outcome in zip(asked, on_each(asked, one), strict=True):
            self._failed.pop(shard.index, None)
            if isinstance(outcome, RetryableError):
                self._failed[shard.index] = outcome
                self._again_at[shard.index] = time.monotonic() + _AGAIN_S
                self._metrics.pop(shard.index, None)
            elif isinstance(outcome, CdcError):
                raise outcome
        if len(self._failed) + len(self._away) == len(self._shards):
            raise next(iter(self._failed.values()), RetryableError("no source can be reached"))

    def metrics(self) -> Mapping[str, float]:
        """Return the greatest value of each gauge: of the source that needs attention first.

        Raises, without `release`: the error of a source, as nobody knows what that one retains.
        """
        if not self._released:
            found = on_all(self._shards, lambda shard: self._histories[shard.index].metrics())
            self._metrics = dict(enumerate(found))
        names = {name for gauges in self._metrics.values() for name in gauges}
        return {
            name: max(gauges[name] for gauges in self._metrics.values() if name in gauges) for name in sorted(names)
        }

    def notice(self) -> str | None:
        texts = [
            f"{self._shards[index].place} could not be reached; resolved timestamps are on hold until it can be reached"
            for index in self._away
        ]
        texts += [f"history is not released: {error}" for _, error in sorted(self._failed.items())]
        for shard in self._shards:
            if shard.index in self._metrics and (text := self._histories[shard.index].notice()):
                texts.append(f"source {shard.place}: {text}")
        return "; ".join(texts) or None

    def close(self) -> None:
        for history in self._histories:
            history.close()
