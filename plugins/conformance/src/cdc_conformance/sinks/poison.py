"""Rows that the destination never accepts, and how a sink reports them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rows import Change, rows
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS
from cdc_core import CdcError, Flushed, RefusedRowsError, RowBatch, Sink, Timestamp

__all__ = ["BAD", "BY_KEY", "BY_SIZE", "Outcome", "Poison", "emit_and_flush"]

BAD = (4711, 4712)
"""Keys of the rows that are refused."""
BY_KEY = pytest.param("key", marks=requires("refusal", "the destination must refuse single rows"))
BY_SIZE = pytest.param("size", marks=requires("row_limit", "the destination must have a limit"))
"""Ways in which a destination refuses rows, as parameters of a fixture for `Poison.requested`."""


class Poison:
    """Makes batches with bad rows: refused by the destination for their key or size, or by the encoder."""

    def __init__(
        self, way: Literal["encoder", "key", "size"], rig: SinkRig, *, limit_bytes: int = 0, disturbance: Any = None
    ) -> None:
        self.way = way
        self._rig = rig
        self._limit_bytes = limit_bytes
        self._disturbance = disturbance

    @classmethod
    def requested(cls, request: pytest.FixtureRequest, rig: SinkRig) -> Poison:
        """Return poison of the way that a fixture's parameter names."""
        disturbance = request.getfixturevalue("disturbance") if request.param == "key" else None
        limit_bytes = request.getfixturevalue("row_limit_bytes") if request.param == "size" else 0
        return cls(request.param, rig, limit_bytes=limit_bytes, disturbance=disturbance)

    def batch(self, keys: Sequence[int], *, at: int = 0, bad: Collection[int] = BAD) -> RowBatch:
        """Return a version of each of *keys*, in order. Within `active`, those in *bad* are refused."""
        large = "n" * (self._limit_bytes if self.way == "size" else 1)
        changes = [Change({"id": key, "note": large if key in bad else f"{key} at {at}"}) for key in keys]
        return rows(ORDERS, changes, start=Timestamp(AT.wall + at))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The destination refuses bad rows until the block ends."""
        if self.way != "key":
            yield
            return
        with self._disturbance.refusing(self._rig.keys(self.batch(BAD))):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the rows between one flush and the next. Exactly one field is set."""

    flushed: Flushed | None = None
    forgotten: RefusedRowsError | None = None
    """The sink refused all rows together, and has forgotten them."""
    error: CdcError | None = None
    """An error that is not about rows."""

    @property
    def indices(self) -> list[int]:
        """The index of each row that `flush` listed as refused."""
        return [] if self.flushed is None else [row.index for row in self.flushed.refused]

    @property
    def refused(self) -> bool:
        return bool(self.indices) or self.forgotten is not None


def emit_and_flush(sink: Sink, *batches: RowBatch) -> Outcome:
    """Emit *batches*, flush, and return what became of the rows."""
    try:
        for batch in batches:
            sink.emit(batch)
        return Outcome(flushed=sink.flush())
    except RefusedRowsError as error:
        return Outcome(forgotten=error)
    except CdcError as error:
        return Outcome(error=error)
