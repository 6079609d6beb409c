"""Rangefeeds that are wrong about moves."""

from __future__ import annotations

from dataclasses import replace

from cdc_conformance.sabotage.broken_rangefeeds.parts import BrokenRangefeed
from cdc_core import ConfigError, Move, Timestamp, Token


class MovesNowhere(BrokenRangefeed):
    """Says that it has moved, and continues where it was."""

    def move(self, saved: Token, to: str | Token) -> Move:
        found = super().move(saved, to)
        return replace(found, token=saved)


class MovesIntoTheFuture(BrokenRangefeed):
    """Takes every time."""

    def move(self, saved: Token, to: str | Token) -> Move:
        try:
            return super().move(saved, to)
        except ConfigError:
            if isinstance(to, str) and Timestamp.is_text(to):
                return super().move(saved, "now")
            raise
