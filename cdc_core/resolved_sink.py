"""The part of a sink that runs in the coordinator: it tells consumers what is resolved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.sink_context import SinkContext
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What the resolved mark `mark` covers and the previous mark did not."""

    mark: Timestamp
    previous: Timestamp | None
    """The mark that was recorded last; zero before a changefeed's first mark; None if rows were delivered since then
    without a record, for example while the changefeed ran without resolved marks.
    """
    latest: Timestamp
    """No row delivered so far has `updated` above this."""
    delivered: tuple[Mapping[str, Any], ...]
    """All entries of `Flushed.delivered` of the steps saved since `previous`, in the order of the steps."""


class ResolvedSink(ABC):
    """Emits resolved marks to every endpoint. The coordinator's process has one instance.

    The engine calls it only after every row at or below the mark has been flushed and this progress has been saved.
    Constructors store values and connect to nothing. If a call raises, the engine closes the instance.

    Raises, everywhere: RetryableSinkError (the step runs again after a wait), TerminalSinkError (the changefeed stops).
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return once every endpoint durably holds the resolved mark: each partition of each topic, one file, one POST.

        Topics without rows need the mark too. It tells consumers that all rows with `updated` at or below *timestamp*
        have arrived; only repeats may follow. So a mark must not overtake rows: for example, the name of its file sorts
        after the names of earlier files. May be called again with the same timestamp, but never with a smaller one.
        """

    def add_topics(self, topics: Collection[str]) -> None:  # noqa: B027 (has a default)
        """Note that later marks must also reach *topics*, which a query has given to rows.

        Called before marks, if the registration sets `routes`, with all such topics of all runs so far, as `Sink.admit`
        got them. By default, does nothing, as for a sink that has one place for the marks of all topics.
        """

    def record(self, covered: Covered) -> None:  # noqa: B027 (has a default)
        """Record durably, for consumers, that *covered* is everything that was added up to its mark.

        Called only if the registration sets `records`, directly before `emit_resolved` of each new mark. Each entry is
        passed for only one mark, whatever crashes in between. A sink of files writes a list of the entries, so that
        readers read no row twice. May be called again with the same mark, previous mark and entries.
        """

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. Afterwards, `emit_resolved` raises a CdcError. May be called twice, or never."""
