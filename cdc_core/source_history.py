"""The part of a rangefeed that lets the source forget."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Token


class SourceHistory:
    """The history that the source retains for a changefeed. The coordinator's process has one instance.

    Processes that only measure the history have others. This class itself is for sources that keep all history and have
    no gauges: a registration that names no `history` uses it. For errors, see `cdc_core.rangefeed`.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    def release(self, token: Token) -> None:
        """Allow the source to discard the history before *token*: all of it is durable at the sink and saved.

        Called after each step, never while a slice is being read. Nothing else releases history, except
        `Rangefeed.start` after a move. The call may be skipped, repeated, and made with a token older than the last.
        """

    def metrics(self) -> Mapping[str, float]:
        """Return the source's gauges by name, such as the bytes of log that it retains; none if it retains nothing.

        Called after `release`. While the changefeed is paused, failing or not running, a node or a server calls it once
        a minute without `release`: the context then has the token `saved` last, and the call must change nothing.
        """
        return {}

    def notice(self) -> str | None:
        """Return what users should know about the history, such as what makes the source retain it, or None.

        Called after `metrics`. Each new text is logged, so leave out figures that change all the time: report those as
        gauges. The text contains no secret, and no value of a row.
        """
        return None

    def close(self) -> None:
        """Release connections. May be called twice, or never."""
