"""How a resolved mark is emitted: the store prepares it, a record of what it covers, the mark, the store knows it."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.resolved_sink import Covered, ResolvedSink
from cdc_core.sink_calls import ObservedCalls
from cdc_core.telemetry.stages import Stages
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore


class ResolvedMarks:
    """Emits the resolved marks of one attempt through *sink*. *records* is what the sink's registration says.

    *routes* is what the sink's registration says; *routed*: rows may get new topics at any time. `emit` and `finish`
    take one transaction of the store each, and each proves that the attempt is still the newest: the first before the
    sink is called, the second before the source may release history.
    """

    def __init__(
        self,
        sink: ResolvedSink,
        store: ProgressStore,
        *,
        name: str,
        epoch: int,
        records: bool,
        routes: bool = False,
        routed: bool = False,
    ) -> None:
        self._sink = sink
        context = getattr(sink, "context", None)  # an author's class may have kept it elsewhere
        self._calls = ObservedCalls() if context is None else context.calls
        self._store = store
        self._name = name
        self._epoch = epoch
        self._records = records
        self._recorded = False
        self._unfinished: Timestamp | None = None
        self._tell_topics = routes
        self._routed = routed

    def emit(self, mark: Timestamp, *, latest: Timestamp, stages: Stages | None = None) -> None:
        """Emit *mark*, and before it any mark that an earlier attempt prepared and perhaps did not emit.

        Called after the progress that reached *mark* was saved; no row of it has `updated` above *latest*. Call
        `finish` afterwards. *stages* are those of the task, which shows what the sink repeats. Raises: FencedError;
        whatever the sink raises.
        """
        with nullcontext() if stages is None else self._calls.observed_by(stages):
            waiting, topics = self._store.marks.prepare(
                self._name, self._epoch, mark, records=self._records, topics=self._tell_topics
            )
            if self._tell_topics:
                self._sink.add_topics(topics)
                self._tell_topics = self._routed  # without such a query there are those of an earlier one
            for each in waiting:
                covered = Covered(mark=each.mark, previous=each.previous, latest=latest, delivered=each.delivered)
                self._sink.record(covered)
                self._sink.emit_resolved(each.mark)
            if not waiting:
                self._sink.emit_resolved(mark)
        self._recorded, self._unfinished = bool(waiting), mark

    def finish(self, *, remember: bool) -> None:
        """Return when the attempt is known to be the newest still.

        Saves that the last mark was emitted, if there is one since the last call and somebody is to know: with
        *remember*, or if it was recorded. Raises: FencedError.
        """
        mark, self._unfinished = self._unfinished, None
        if mark is not None and (self._recorded or remember):
            self._store.marks.save_emitted(self._name, self._epoch, mark, recorded=self._recorded)
        else:
            self._store.changefeeds.require_newest(self._name, self._epoch)

    def close(self) -> None:
        self._sink.close()


def open_resolved_marks(feed: ResolvedChangefeed, store: ProgressStore) -> ResolvedMarks:
    """Return what emits the resolved marks of attempt `feed.epoch`."""
    return ResolvedMarks(
        Parts(feed).open_resolved_sink(),
        store,
        name=feed.name,
        epoch=feed.epoch,
        records=feed.sink.registration.records,
        routes=feed.sink.registration.routes,
        routed=feed.routes,
    )


def emit_last_resolved_mark(feed: ResolvedChangefeed, store: ProgressStore) -> None:
    """Emit the mark that the saved progress has reached, at the end of attempt `feed.epoch`. The store remembers it.

    Raises: as `emit`.
    """
    progress = store.progress.load(feed.name)
    if feed.options.resolved is None or progress is None:
        return
    mark = progress.last_mark(scans_only=feed.options.initial_scan == "only")
    if not mark:
        return
    with closing(open_resolved_marks(feed, store)) as marks:
        marks.emit(mark, latest=progress.latest)
        marks.finish(remember=True)
