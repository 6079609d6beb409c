"""The part of a rangefeed that lets the source forget."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Token


class SourceHistory:
    """What the source retains for a changefeed. Lives in the coordinator's process, and where it is only measured.

    This class itself serves a source that keeps all history and has no gauges: a registration that names no `history`
    uses it. Errors: see `cdc_core.rangefeed`.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    def release(self, token: Token) -> None:
        """Let the source forget the history before *token*: all of it is durable at the sink and saved.

        After each step, never while a slice is being read. Nothing else lets history go, except `Rangefeed.start` after
        a move. May be skipped, repeated, and called with a token older than the last.
        """

    def metrics(self) -> Mapping[str, float]:
        """Return the source's gauges by name, such as the bytes of log that it retains; none if it retains nothing.

        After `release`. Also without it, once a minute in a node or a server, while the changefeed is paused, fails or
        runs nowhere: then the context has the token `saved` last, and nothing may be changed.
        """
        return {}

    def notice(self) -> str | None:
        """Return what people should know about the history, such as who makes the source retain it; None for nothing.

        After `metrics`. Each new text is logged, so leave out figures that change all the time: those are gauges. It
        contains no secret, and no value of a row.
        """
        return None

    def close(self) -> None:
        """Release connections. May be called twice, or never."""
