"""How a resolved mark goes out: first what it covers, then the mark, then the store may forget."""

from __future__ import annotations

from cdc_core.progress import ProgressStore
from cdc_core.sink import Sink
from cdc_core.timestamp import Timestamp

__all__ = ["emit_mark"]


def emit_mark(sink: Sink, store: ProgressStore, *, name: str, epoch: int, mark: Timestamp) -> None:
    """Emit *mark*, and before it any that a run before has prepared and perhaps not emitted.

    Called after the progress that reached *mark* was saved. Raises: FencedError; whatever the sink raises.
    """
    waiting = store.deliver_marks(name, epoch, mark)
    for earlier, delivered in waiting:
        sink.record(earlier, delivered)
        sink.emit_resolved(earlier)
    if not waiting or waiting[-1][0] != mark:
        sink.emit_resolved(mark)
    if waiting:
        store.recorded(name, epoch, [earlier for earlier, _ in waiting])
