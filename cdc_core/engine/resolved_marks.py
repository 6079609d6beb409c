"""How a resolved mark goes out: first what it covers, then the mark, then the store may forget."""

from __future__ import annotations

from cdc_core.config.resolved import Job
from cdc_core.sink import Covered, Sink
from cdc_core.store.progress import ProgressStore
from cdc_core.timestamp import Timestamp

__all__ = ["emit_last_mark", "emit_mark"]


def emit_mark(
    sink: Sink,
    store: ProgressStore,
    *,
    name: str,
    epoch: int,
    mark: Timestamp,
    latest: Timestamp,
    interval_s: float,
) -> None:
    """Emit *mark*, and before it any that a run before has prepared and perhaps not emitted.

    Called after the progress that reached *mark* was saved; no row of it has `updated` above *latest*. Where marks keep
    a distance, *interval_s*, the store remembers it: the process that emits the next one may be another. Raises:
    FencedError; whatever the sink raises.
    """
    waiting = store.deliver_marks(name, epoch, mark) if sink.records else []
    for each in waiting:
        sink.record(Covered(mark=each.mark, previous=each.previous, latest=latest, delivered=each.delivered))
        sink.emit_resolved(each.mark)
    if waiting:
        store.recorded(name, epoch, mark)
    else:
        sink.emit_resolved(mark)
    if interval_s:
        store.emitted(name, epoch, mark)


def emit_last_mark(job: Job, store: ProgressStore) -> None:
    """Emit the mark that the saved progress has reached, at the end of run `job.epoch`. Raises: as `emit_mark`."""
    progress = store.load(job.name)
    interval_s = job.options.resolved
    if interval_s is None or progress is None or not progress.frontier.high_water:
        return
    sink = job.open_sink()
    try:
        high_water = progress.frontier.high_water
        emit_mark(
            sink,
            store,
            name=job.name,
            epoch=job.epoch,
            mark=high_water,
            latest=progress.latest,
            interval_s=interval_s,
        )
    finally:
        sink.close()
