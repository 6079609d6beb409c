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
    """How far one span has been read: yielded by `SliceReader.read` after the rows of *span* in a slice.

    Every row of the span in this slice has `updated <= timestamp`, and rows of later steps have a greater `updated`
    (scanned rows: greater or equal). If `resolved`, every row of the span with `updated <= timestamp` has been read as
    well.
    """

    span: Span
    timestamp: Timestamp
    resolved: bool


class SliceReader(ABC):
    """Reads slices in one worker process, one at a time, and stays open between the slices of an attempt.

    For errors, see `cdc_core.rangefeed`. If `read` raises or is abandoned, the engine closes the instance.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @property
    def unchecked_texts(self) -> bool:
        """Whether texts in the rows that `read` yields may contain bytes that are not UTF-8; by default False. The
        engine asks for each batch. If true, it searches the texts, and refuses rows with such bytes.
        """
        return False

    def check(self) -> None:  # noqa: B027 (has a default)
        """Check that this process reaches the source. Called on each executor of a cluster, on a separate instance,
        before anything is created: a firewall may let only the driver pass, or the executor may lack a certificate.
        Changes nothing. Raises: a CdcError, within seconds. By default, nothing is checked.
        """

    def local_directory(self) -> Path | None:
        """Return the directory of this host's file system that is read; None, the default, if the source is a server.

        On a cluster, every host that runs tasks must see the same directory at this path. To check this, the engine
        puts a file `.cdc-probe-…` into the directory while a changefeed runs. Called in the driver. Connects to
        nothing.
        """
        return None

    @abstractmethod
    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """Yield the rows of *slice_* and, after them, one mark for each span that the slice advances.

        Reading is repeatable: the same slice yields the same rows in the same order (scan slices: within their round),
        however often it is read, in whatever process, and whatever has been committed since. Rows of a key come in
        `updated` order, across batches, slices and steps. A large value that an update did not change is in `after`
        too, or `unavailable` names its column. Yield early, so that memory stays bounded however large the slice is.
        The iterator may be abandoned, or its process killed, at any time.
        """

    def position_of(self, updated: Timestamp) -> str | None:  # noqa: ARG002
        """Return the source's own position of the commit of rows with *updated*, such as a place in its log. `cdc
        trace` asks for rows of the batch that `read` yielded last. By default, None: the source has no positions.
        """
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
