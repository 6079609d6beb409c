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
    """About how much one step may hold. A step may be larger only where the source cannot cut (one transaction)."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One task's share of a step. Picklable and small: `payload` says where the rows are, and does not contain them.

    No row of the slice has `updated` below `lower`, and `lower` is above what is resolved for all tables together. The
    engine checks both, and stops the changefeed rather than deliver a row that came too late. `locality` is where it is
    best read, for a registration with `replicas`: an executor takes the nearest slice that no other has taken.
    """

    lower: Timestamp
    payload: Any
    locality: Locality = field(default_factory=Locality)


class StepPlanner(ABC):
    """Plans the steps of one attempt. Lives in the planner's process; the driver opens one to read the clock.

    Its methods are never called while a slice is being read. Errors: see `cdc_core.rangefeed`.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @abstractmethod
    def now(self) -> Timestamp:
        """Return the source's clock: all that is committed when this is called will have `updated` at or below it."""

    @abstractmethod
    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Return where the next step ends: *start* itself when there is nothing to do yet.

        Once a step, and again while idle or if a result was lost. *after* is the greatest timestamp of any span mark so
        far. A step ends between transactions, and obeys *limit*. When it passes a change of a table's shape, no mark of
        it is resolved before the context's rules for schema changes have been carried out.

        An idle source advances too, at its own pace: the end has a new clock, or nothing would be resolved. A clock may
        become a mark only if no later commit can be at or below it. Read it where commits are ordered, or use the time
        of the last commit: clocks of hosts can go back. Transactions commit in another order than they begin, so do not
        skip a long one because its first row is old.
        """

    @abstractmethod
    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Return the step's slices, at least one. No key is in two of them. Directly after `advance`."""

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:  # noqa: ARG002
        """Return the slices of a step that an earlier attempt planned and may not have finished; None to plan it again.

        In place of the first `advance` and `slices` of an attempt, if the registration says `repeats_steps`. *start* is
        what `Rangefeed.start` returned; *end* and *after* are those of the earlier attempt, and so is the context's
        `parallelism`, for which another planner may be opened that does nothing else. The slices must be what
        `slices` returned then, in their `repr` too, by which the engine compares them, and yield the same rows in the
        same batches; return None where that cannot be, as for slices of an initial scan. Rows then have the same names
        at the sink, and readers of files see hardly any repeats. By default no step is repeated.
        """
        return None

    def check_rescan(self, rescan: Rescan) -> None:  # noqa: ARG002
        """Return when `scan_again` can take *rescan*: for a person who asks for it, perhaps while the changefeed runs.

        Changes nothing at the source, whatever the predicate says. By default no source can. Raises: ConfigError.
        """
        raise ConfigError(f"the source of this changefeed cannot read tables again. {START_OVER}")

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:  # noqa: ARG002
        """Return *start* with *rescans* still to be read; None when it cannot take them yet, and is to be asked again.

        The engine passes the token to the next `advance` in place of *start*, and a crash before the step is saved
        loses it: then it asks again. A table that is no longer watched is left out. All rows of a rescan have the op
        SCAN and one `updated` per snapshot, above *after* of that `advance`, and no mark is resolved until the
        last of them was read. Changes of all tables continue, in the order of each key.
        """
        return None

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice, or never."""
