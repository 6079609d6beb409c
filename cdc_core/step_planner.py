"""The part of a rangefeed that decides where steps end and what their slices are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.errors import START_OVER, ConfigError
from cdc_core.locality import Locality
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Rescan, Token
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimit:
    """Approximate limits of a step. A step may exceed them only if the source cannot divide it (one transaction)."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One task's share of a step. Picklable and small: `payload` says where the rows are, but does not contain them.

    No row of the slice has `updated` below `lower`, and `lower` is above the resolved timestamp of all tables together.
    The engine checks both, and stops the changefeed rather than deliver a row too late. For a registration with
    `replicas`, `locality` says where the slice is best read: an executor takes the nearest slice that no other executor
    has taken.
    """

    lower: Timestamp
    payload: Any
    locality: Locality = field(default_factory=Locality)


class StepPlanner(ABC):
    """Plans the steps of one attempt. The planner's process has one; the driver opens another to read the clock.

    Its methods are never called while a slice is being read. For errors, see `cdc_core.rangefeed`.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @abstractmethod
    def now(self) -> Timestamp:
        """Return the source's clock: everything committed before this call has `updated` at or below it."""

    @abstractmethod
    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Return where the next step ends, or *start* itself if there is nothing to do yet.

        Called once per step, and again while idle or if a result was lost. *after* is the greatest timestamp of any
        span mark so far. A step ends between transactions, and obeys *limit*. When a step passes a change of a table's
        shape, none of its marks is resolved until the context's rules for schema changes have been carried out.

        An idle source advances too, at its own pace: only the clock in the token changes, because otherwise nothing
        would be resolved. A clock may become a mark only if no later commit can be at or below it. Read the clock where
        commits are ordered, or use the time of the last commit: clocks of hosts can go back. Transactions do not commit
        in the order in which they begin, so do not skip a long one because its first row is old.
        """

    @abstractmethod
    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Return the step's slices, at least one. No key is in two of them. Called directly after `advance`."""

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:  # noqa: ARG002
        """Return the slices of a step that an earlier attempt planned and may not have finished; None to plan again.

        Called instead of the first `advance` and `slices` of an attempt, if the registration sets `repeats_steps`.
        *start* is what `Rangefeed.start` returned; *end* and *after* are those of the earlier attempt, and so is the
        context's `parallelism`, for which the engine may open a separate planner. The slices must equal those that
        `slices` returned then, including their `repr`, which the engine compares, and yield the same rows in the same
        batches. Return None if this is not possible, as for slices of an initial scan. Rows then have the same names at
        the sink, so readers of files see almost no repeats. By default, no step is repeated.
        """
        return None

    def check_rescan(self, rescan: Rescan) -> None:  # noqa: ARG002
        """Check that `scan_again` can accept *rescan*, which a user requests, perhaps while the changefeed runs.

        Changes nothing at the source, whatever the predicate contains. By default, rescans are refused. Raises:
        ConfigError.
        """
        raise ConfigError(f"the source of this changefeed cannot read tables again. {START_OVER}")

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:  # noqa: ARG002
        """Return *start* with *rescans* still to be read; None if they cannot be accepted yet: the engine asks again.

        The engine passes the token to the next `advance` instead of *start*. If a crash before the step is saved loses
        the token, the engine asks again. A table that is no longer watched is left out. All rows of a rescan have the
        op SCAN and one `updated` per snapshot, above the *after* of that `advance`, and no mark is resolved until the
        last of them has been read. Changes to all tables continue, in order per key.
        """
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
