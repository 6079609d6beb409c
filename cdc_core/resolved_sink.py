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
    """What the resolved mark `mark` covers and the mark before it did not."""

    mark: Timestamp
    previous: Timestamp | None
    """The mark that was recorded last; zero before the first of a changefeed. None when rows were delivered since then
    without a record, for example while the changefeed ran without resolved marks."""
    latest: Timestamp
    """No row that was delivered so far has `updated` above this."""
    delivered: tuple[Mapping[str, Any], ...]
    """Every entry of `Flushed.delivered` of the steps that were saved since `previous`, in the order of the steps."""


class ResolvedSink(ABC):
    """Emits resolved marks to every endpoint. One instance lives in the coordinator's process.

    The engine calls it only after every row at or below the mark was flushed and that progress was saved. Constructors
    store values and connect to nothing. When a call raised, the instance is closed.

    Raises, everywhere: RetryableSinkError (the step runs again after a wait), TerminalSinkError (the changefeed stops).
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when every endpoint durably holds the resolved mark: each partition of each topic, one file, one POST.

        Topics without rows need it too. It tells consumers that all rows with `updated` at or below *timestamp* have
        arrived; only repeats may follow. So it must not overtake rows: the name of a mark's file sorts after the files
        before it. May be called again with the same timestamp, never with a smaller one.
        """

    def add_topics(self, topics: Collection[str]) -> None:  # noqa: B027 (has a default)
        """Note that later marks must also reach *topics*, which a query has given to rows.

        Before marks of a sink whose registration says `routes`: all such topics so far, of all runs, as `Sink.admit`
        got them. By default nothing depends on it, as for a sink whose marks have one place for all topics.
        """

    def record(self, covered: Covered) -> None:  # noqa: B027 (has a default)
        """Return when consumers can durably learn that *covered* is all that was added up to its mark.

        Only for a sink whose registration says `records`, directly before `emit_resolved` of each new mark. Each entry
        is passed for one mark only, whatever crashed in between. A sink of files writes a list of them, so that readers
        read no row twice. May be called again with the same mark, previous mark and entries.
        """

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. Then `emit_resolved` raises a CdcError. May be called twice, or never."""
