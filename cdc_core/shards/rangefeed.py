"""The driver's part of several sources."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_core.errors import CdcError, ConfigError
from cdc_core.rangefeed import Rangefeed
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import Move, ScanProgress, SourceObjects, Token
from cdc_core.schema import TableSchema
from cdc_core.shards.names import Names, common_databases, differences
from cdc_core.shards.shard import Shard, is_outage_of, on_all, on_each, shards_of
from cdc_core.shards.token import ShardedToken, ShardState

log = logging.getLogger(__name__)


class ShardedRangefeed(Rangefeed):
    """See `Rangefeed`. Has one of the class *part* for each of *sources*."""

    def __init__(self, context: RangefeedContext, part: type[Rangefeed], sources: Sequence[str]) -> None:
        super().__init__(context)
        self._shards = shards_of(context, sources)
        self._parts = [part(shard.context) for shard in self._shards]
        self._token = None if context.saved is None else ShardedToken.from_json(context.saved)

    def check(self) -> None:
        def one(shard: Shard) -> Sequence[TableSchema]:
            self._parts[shard.index].check()
            return self._parts[shard.index].schemas()

        found = differences(self._shards, on_all(self._shards, one))
        if found and self.context.saved is None:
            raise ConfigError(f"{found[0]}; give the sources the same tables")
        for difference in found:
            log.warning("%s", difference)

    def schemas(self) -> Sequence[TableSchema]:
        """Return the tables of all sources. Those that were out of reach at the start have the tables of the others."""
        away = self._token.away if self._token is not None else ()
        present = [shard for shard in self._shards if shard.index not in away]
        found = on_all(present, lambda shard: self._parts[shard.index].schemas())
        known = self._token.shards if self._token is not None else (ShardState(),) * len(self._shards)
        schemas: dict[str, TableSchema] = {}
        first = found[0] if 0 not in away else []
        for shard, mine in zip(present, found, strict=True):
            databases = common_databases(first, mine, known[shard.index].databases)
            names = Names(index=shard.index, count=shard.count, databases=databases)
            for schema in map(names.schema, mine):
                schemas.setdefault(schema.name.full, schema)
        return list(schemas.values())

    def explain(self, schema: TableSchema) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what the first source says: all of them have the same tables and options."""
        return self._parts[0].explain(schema)

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        states: tuple[ShardState, ...] = (ShardState(),) * len(self._shards)
        before = ShardedToken(shards=states, started=False) if saved is None else ShardedToken.from_json(saved)
        intents = [state.token for state in before.shards]
        lock = threading.Lock()

        def one(shard: Shard) -> tuple[Token, Sequence[TableSchema]]:
            part = self._parts[shard.index]

            def save_intent(intent: Token) -> None:
                with lock:
                    intents[shard.index] = intent
                    save(before.with_tokens(intents).to_json())

            return part.start(before.shards[shard.index].token, save_intent), part.schemas()

        results = on_each(self._shards, one)
        errors = [result for result in results if isinstance(result, CdcError)]
        for error in errors:
            everywhere = not before.started or self.context.initial_scans or len(errors) == len(self._shards)
            if everywhere or not is_outage_of(error):
                raise error
            log.warning("source unreachable, skipping it; resolved timestamps are on hold: %s", error)
        found = [None if isinstance(result, CdcError) else result for result in results]
        present = [(shard, result[1]) for shard, result in zip(self._shards, found, strict=True) if result is not None]
        for difference in differences([shard for shard, _ in present], [schemas for _, schemas in present]):
            log.warning("%s", difference)
        self._token = replace(
            before,
            shards=_with_databases(before.shards, found),
            started=True,
            away=tuple(index for index, result in enumerate(found) if result is None),
        )
        return self._token.to_json()

    def move(self, saved: Token, to: str | Token) -> Move:
        """Move each source by itself. All of them, or none."""
        before = ShardedToken.from_json(saved)
        targets = ShardedToken.targets_in(to, count=len(self._shards))

        def one(shard: Shard) -> Move:
            token, target = before.shards[shard.index].token, targets[shard.index]
            if token is None or target is None:
                raise ConfigError("nothing has been read from it yet")
            return self._parts[shard.index].move(token, target)

        chosen = [shard for shard in self._shards if targets[shard.index] is not None]
        moves = on_all(chosen, one)
        tokens = [state.token for state in before.shards]
        for shard, move in zip(chosen, moves, strict=True):
            tokens[shard.index] = move.token
        return Move(
            token=before.with_tokens(tokens).to_json(),
            before=", ".join(f"{move.before} of {shard.place}" for shard, move in zip(chosen, moves, strict=True)),
            after=", ".join(f"{move.after} of {shard.place}" for shard, move in zip(chosen, moves, strict=True)),
            forward=any(move.forward for move in moves),
            back=any(move.back for move in moves),
        )

    def scan_progress(self, token: Token) -> ScanProgress | None:
        found = []
        for part, state in zip(self._parts, ShardedToken.from_json(token).shards, strict=True):
            progress = None if state.token is None else part.scan_progress(state.token)
            if progress is not None:
                found.append(progress)
        if not found:
            return None
        return ScanProgress(
            done=sum(progress.done for progress in found),
            total=sum(progress.total for progress in found),
            unit=found[0].unit,
        )

    def drop(self, saved: Token | None) -> None:
        states = None if saved is None else ShardedToken.from_json(saved).shards

        def one(shard: Shard) -> None:
            self._parts[shard.index].drop(None if states is None else states[shard.index].token)

        on_all(self._shards, one)

    def created(self) -> Sequence[SourceObjects] | None:
        """Return what is on all sources. What belongs to this changefeed has its identity, not those of the shards."""
        found: list[SourceObjects] = []
        everywhere = on_all(self._shards, lambda shard: self._parts[shard.index].created())
        for shard, entries in zip(self._shards, everywhere, strict=True):
            if entries is None:
                return None
            for entry in entries:
                mine = entry.feed_id == shard.context.feed_id
                feed_id = self.context.feed_id if mine else entry.feed_id
                found.append(replace(entry, feed_id=feed_id, name=f"{entry.name} at {shard.place}"))
        return found

    def close(self) -> None:
        for part in self._parts:
            part.close()


def _with_databases(
    states: Sequence[ShardState], found: Sequence[tuple[Token, Sequence[TableSchema]] | None]
) -> tuple[ShardState, ...]:
    """Return *states* with what the start of each source *found*, None for those that could not be reached."""
    first = [] if found[0] is None else list(found[0][1])
    result = []
    for state, started in zip(states, found, strict=True):
        if started is None:
            result.append(state)
            continue
        token, schemas = started
        result.append(replace(state, token=token, databases=common_databases(first, schemas, state.databases)))
    return tuple(result)
