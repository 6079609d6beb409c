"""The part of a rangefeed that runs in tasks: it reads slices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rows import RowBatch
from cdc_core.span import Span
from cdc_core.step_planner import Slice
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanMark:
    """How far one span has got: yielded by `SliceReader.read` after the rows of *span* in a slice.

    Every row of the span in this slice has `updated <= timestamp`, and every later step's rows have it greater (scanned
    rows: greater or equal). If `resolved`, every row of the span with `updated <= timestamp` has been read as well.
    """

    span: Span
    timestamp: Timestamp
    resolved: bool


class SliceReader(ABC):
    """Reads slices in one worker process, one at a time. Stays open between slices of an attempt.

    Errors: see `cdc_core.rangefeed`. When `read` raised or was abandoned, the instance is closed.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @property
    def unchecked_texts(self) -> bool:
        """Whether texts of the rows that `read` yields may be other bytes than UTF-8. By default they are not. The
        engine asks with each batch, looks for such texts and refuses their rows; otherwise it does not look.
        """
        return False

    def check(self) -> None:  # noqa: B027 (has a default)
        """Return when this process reaches the source. On each executor of a cluster, on an instance of its own,
        before anything is created: a firewall may let only the driver pass, or a certificate may be missing there.
        Changes nothing. Raises: a CdcError, in seconds. By default nothing is checked.
        """

    def local_directory(self) -> Path | None:
        """Return the directory of this host's file system that is read; by default None: the source is a server.

        On a cluster every host that runs tasks must see the same directory at this path. The engine sees to it with a
        file `.cdc-probe-…` in the directory while a changefeed runs. Driver. Connects to nothing.
        """
        return None

    @abstractmethod
    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """Yield the rows of *slice_* and, after them, one mark for each span that the slice advances.

        Repeatable: the same slice yields the same rows in the same order (scan slices: within their round), however
        often it is read, in whatever process, and whatever was committed since. Rows of a key come in `updated` order,
        across batches, slices and steps. A large value that an update did not change is part of `after` too, or named
        in `unavailable`. Yield early: memory stays bounded however large the slice is. The iterator may be abandoned,
        or its process killed, at any point.
        """

    def position_of(self, updated: Timestamp) -> str | None:  # noqa: ARG002
        """Return the source's own name for the commit of rows with *updated*, such as a place in its log. For `cdc
        trace`, of rows of the batch that `read` yielded last. By default None: it has none.
        """
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
