"""The planner of several sources: a step is the union of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from cdc_core.errors import CdcError
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Rescan, Token
from cdc_core.shards.names import Names
from cdc_core.shards.reader import ShardSlice
from cdc_core.shards.shard import Outages, Shard, is_outage_of, on_all, on_each, shards_of
from cdc_core.shards.token import ShardedToken, ShardState
from cdc_core.step_planner import Slice, StepLimit, StepPlanner
from cdc_core.timestamp import Timestamp


class ShardedPlanner(StepPlanner):
    """See `StepPlanner`. Has one of the class *part* for each of *sources*; each gets an equal share of the limit.

    With *scans_only* a source is read no further when its scan is complete, and with *end* when that is resolved.
    """

    def __init__(
        self,
        context: RangefeedContext,
        part: type[StepPlanner],
        sources: Sequence[str],
        *,
        scans_only: bool = False,
        end: Timestamp | None = None,
    ) -> None:
        super().__init__(context)
        self._shards = shards_of(context, sources)
        self._planners = [part(shard.context) for shard in self._shards]
        self._scans_only = scans_only
        self._end = end
        self._token = None if context.saved is None else ShardedToken.from_json(context.saved)
        self._planned = False

        def probe(shard: Shard) -> None:
            with closing(part(shard.context)) as planner:
                planner.now()

        self._outages = Outages(self._shards, probe)

    def now(self) -> Timestamp:
        def one(shard: Shard) -> Timestamp:
            return self._planners[shard.index].now()

        if self._planned:
            return max(self._outages.answers(one).values())
        found = on_each(self._shards, one)
        clocks = [clock for clock in found if isinstance(clock, Timestamp)]
        for error in found:
            if isinstance(error, CdcError) and not (clocks and is_outage_of(error)):
                raise error
        return max(clocks)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        token, count = ShardedToken.from_json(start), len(self._shards)
        self._token = token
        share = StepLimit(rows=max(1, limit.rows // count), bytes=max(1, limit.bytes // count))
        self._planned = True
        self._outages.leave_out(token.away)

        def one(shard: Shard) -> Token | None:
            state = token.shards[shard.index]
            if state.token is None or (self._scans_only and state.resolved):
                return state.token
            if self._end is not None and state.resolved >= self._end:
                return state.token
            return self._planners[shard.index].advance(state.token, after=state.after(after), limit=share)

        ends = self._outages.answers(one)
        tokens = [ends.get(index, state.token) for index, state in enumerate(token.shards)]
        end = token.with_tokens(tokens)
        return start if end == token else replace(end, away=self._outages.left_out).to_json()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found: list[Slice] = []
        for shard, state, last in self._moved(start, end):
            assert state.token is not None
            with shard.naming():
                mine = self._planners[shard.index].slices(state.token, last, after=state.after(after))
            found += _of_shard(shard, state, mine)
        return found

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        found: list[Slice] = []
        for shard, state, last in self._moved(start, end):
            if state.token is None or shard.index in ShardedToken.from_json(start).away:
                return None
            with shard.naming():
                mine = self._planners[shard.index].repeat(state.token, last, after=state.after(after))
            if mine is None:
                return None
            found += _of_shard(shard, state, mine)
        return found

    def check_rescan(self, rescan: Rescan) -> None:
        def one(shard: Shard) -> None:
            state = ShardState() if self._token is None else self._token.shards[shard.index]
            self._planners[shard.index].check_rescan(_names(shard, state).rescan(rescan))

        on_all(self._shards, one)

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        token = ShardedToken.from_json(start)
        if token.away:
            return None

        def one(shard: Shard) -> Token | None:
            state = token.shards[shard.index]
            assert state.token is not None
            names = _names(shard, state)
            return self._planners[shard.index].scan_again(state.token, [names.rescan(rescan) for rescan in rescans])

        self._planned = True
        found = self._outages.answers(one)
        if len(found) < len(self._shards) or None in found.values():
            return None
        again = token.with_tokens(found[shard.index] for shard in self._shards)
        if again == token:
            return start
        # The rows of all sources are to be later than everything before, whatever their clocks say.
        return replace(again, shards=tuple(replace(state, latest=None) for state in again.shards)).to_json()

    def close(self) -> None:
        for planner in self._planners:
            with suppress(CdcError):
                planner.close()

    def _moved(self, start: Token, end: Token) -> list[tuple[Shard, ShardState, Token]]:
        """Return the sources that the step from *start* to *end* reads: how far they are, and where it ends."""
        first, last = ShardedToken.from_json(start), ShardedToken.from_json(end)
        return [
            (shard, state, following.token)
            for shard, state, following in zip(self._shards, first.shards, last.shards, strict=True)
            if following.token is not None and following.token != state.token
        ]


def _names(shard: Shard, state: ShardState) -> Names:
    return Names(index=shard.index, count=shard.count, databases=state.databases)


def _of_shard(shard: Shard, state: ShardState, slices: Sequence[Slice]) -> list[Slice]:
    names = _names(shard, state)
    return [replace(slice_, payload=ShardSlice(names=names, payload=slice_.payload)) for slice_ in slices]
