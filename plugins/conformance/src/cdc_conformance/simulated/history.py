"""Releases the history that the simulated database keeps for a changefeed."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_conformance.simulated.source import Source
from cdc_conformance.simulated.tokens import SimulatedToken
from cdc_core import RangefeedContext, SourceHistory, Token

__all__ = ["SimulatedHistory"]


class SimulatedHistory(SourceHistory):
    """Moves the changefeed's protected timestamp, below which the database may collect garbage."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = Source(context)

    def release(self, token: Token) -> None:
        needed = SimulatedToken.from_token(token).needed
        database = self.source.database
        kept = database.protected().get(self.source.feed)
        if kept is not None and needed > kept:
            database.protect(self.source.feed, needed)

    def metrics(self) -> Mapping[str, float]:
        database = self.source.database
        kept = database.protected().get(self.source.feed)
        return {"retained_s": 0.0 if kept is None else max(0.0, (database.now.wall - kept.wall) / 1e9)}

    def close(self) -> None:
        self.source.close()
