"""Rows that the destination never takes, and what a sink says of them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc_conformance.rows import Change, rows
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS
from cdc_core import CdcError, Flushed, PartialWriteError, RefusedRowsError, RowBatch, Sink, Timestamp

__all__ = ["BAD", "Answer", "Poison", "give"]

_MOST = 1000
BAD = (4711, 4712)
"""Keys of the rows that are refused."""


class Poison:
    """Makes batches some rows of which are refused: by the destination for their keys or size, or by the encoder."""

    def __init__(
        self, way: Literal["encoder", "key", "size"], rig: SinkRig, *, limit_bytes: int = 0, disturbance: Any = None
    ) -> None:
        self.way = way
        self._rig = rig
        self._limit_bytes = limit_bytes
        self._disturbance = disturbance

    def batch(self, keys: Sequence[int], *, at: int = 0, bad: Collection[int] = BAD) -> RowBatch:
        """Return a version of each of *keys*, in order; while this is at work, those in *bad* are refused."""
        large = "n" * (self._limit_bytes if self.way == "size" else 1)
        changes = [Change({"id": key, "note": large if key in bad else f"{key} at {at}"}) for key in keys]
        return rows(ORDERS, changes, start=Timestamp(AT.wall + at))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """The destination refuses the bad rows meanwhile."""
        if self.way != "key":
            yield
            return
        with self._disturbance.refusing(self._rig.keys(self.batch(BAD))):
            yield


@dataclass(slots=True)
class Answer:
    """What a sink said of the rows between one flush and the next."""

    failures: list[tuple[int, str]] = field(default_factory=list)
    """Rows that a PartialWriteError named, in the order in which they were named."""
    whole: RefusedRowsError | None = None
    """What refused all of the rows together. The sink has forgotten them."""
    other: CdcError | None = None
    """What was raised that is not about rows."""
    flushed: Flushed | None = None

    @property
    def refused(self) -> bool:
        return bool(self.failures) or self.whole is not None


def give(sink: Sink, *batches: RowBatch) -> Answer:
    """Emit *batches* and flush, as the engine does: on after a PartialWriteError, back after a RefusedRowsError.

    A flush that raised PartialWriteError is followed by another, which tells how much was delivered.
    """
    answer = Answer()
    try:
        for batch in batches:
            with _noting(answer):
                sink.emit(batch)
        while answer.flushed is None:
            with _noting(answer):
                answer.flushed = sink.flush()
    except RefusedRowsError as error:
        answer.whole = error
    except CdcError as error:
        answer.other = error
    return answer


@contextlib.contextmanager
def _noting(answer: Answer) -> Iterator[None]:
    try:
        yield
    except PartialWriteError as error:
        if len(answer.failures) > _MOST:  # it would go on for ever
            raise
        answer.failures += error.failures or [(-1, "none was named")]
