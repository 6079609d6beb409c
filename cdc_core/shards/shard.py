"""One source of several: its identity, its place, its part of the key space; and calls for all of them at a time."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TypeVar

from cdc_core.errors import CdcError, RestartError, RetryableError, RetryableRangefeedError
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.shards.token import ShardedToken
from cdc_core.span import Span
from cdc_core.uris import place_of

_PREFIX_BYTES = 2
MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The source at `index` of `count`. A rangefeed that is built from `context` reads this source alone."""

    index: int
    count: int
    context: RangefeedContext

    @property
    def place(self) -> str:
        """How messages name the source. Holds no secret."""
        return place_of(self.context.uri)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Put the source's name before the message of every error that leaves the block."""
        try:
            yield
        except CdcError as error:
            error.args = (f"source {self.place}: {error}",)
            raise

    def span(self, span: Span, *, table: str) -> Span:
        """Return where the changefeed has *span* of this source; *table* is the table's name there."""
        whole = shard_span(table, self.index, self.count)
        prefix = self.index.to_bytes(_PREFIX_BYTES)
        return Span(
            table,
            prefix + span.start if span.start else whole.start,
            whole.end if span.end is None else prefix + span.end,
        )


def shard_span(table: str, index: int, count: int) -> Span:
    """Return the keys of *table* that are in one shard. Those of all shards are the whole table."""
    start = b"" if index == 0 else index.to_bytes(_PREFIX_BYTES)
    return Span(table, start, None if index == count - 1 else (index + 1).to_bytes(_PREFIX_BYTES))


def shard_feed_id(feed_id: str, index: int) -> str:
    """Return the identity under which a changefeed creates things on one of its sources.

    Two of them may be databases of one server, where the names of slots must differ.
    """
    return hashlib.sha256(f"{feed_id}/{index}".encode()).hexdigest()[: len(feed_id)]


def shards_of(context: RangefeedContext, sources: Sequence[str]) -> tuple[Shard, ...]:
    """Return the shards of a changefeed: *context* is of the whole, *sources* are their URIs."""
    count = len(sources)
    token = None if context.saved is None else ShardedToken.from_json(context.saved)
    return tuple(
        Shard(
            index=index,
            count=count,
            context=replace(
                context,
                uri=uri,
                feed_id=shard_feed_id(context.feed_id, index),
                saved=None if token is None else token.shards[index].token,
                parallelism=max(1, -(-context.parallelism // count)),
            ),
        )
        for index, uri in enumerate(sources)
    )


log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_THREADS = 16
_PROBE_S = 2.0


def on_each(shards: Sequence[Shard], call: Callable[[Shard], T]) -> list[T | CdcError]:
    """Return what *call* returns for each of *shards*, or the error that it raised, which names the source.

    One call for a shard at a time, several shards at the same time. Raises: every error that is not a CdcError.
    """

    def tried(shard: Shard) -> T | CdcError:
        try:
            with shard.naming():
                return call(shard)
        except CdcError as error:
            return error

    if len(shards) < 2:
        return [tried(shard) for shard in shards]
    with ThreadPoolExecutor(min(len(shards), _MAX_THREADS), thread_name_prefix="cdc-shards") as pool:
        contexts = [copy_context() for _ in shards]
        return list(pool.map(lambda context, shard: context.run(tried, shard), contexts, shards))


def on_all(shards: Sequence[Shard], call: Callable[[Shard], T]) -> list[T]:
    """Return what *call* returns for each of *shards*. Raises: the first error, when all have been called."""
    found: list[T] = []
    for result in on_each(shards, call):
        if isinstance(result, CdcError):
            raise result
        found.append(result)
    return found


def is_outage_of(error: object) -> bool:
    """Return whether *error* says that one source is out of reach or busy, while others can be read."""
    return isinstance(error, RetryableError) and error.outage and not isinstance(error, RestartError)


class Outages:
    """The sources that the planner leaves out because they do not answer, so that rows of the others keep flowing.

    Nothing is resolved meanwhile. *probe* is called in a thread from time to time, for a source that is left out. When
    it returns, the attempt ends, and the next one has the source again.
    """

    def __init__(self, shards: Sequence[Shard], probe: Callable[[Shard], object]) -> None:
        self._shards = shards
        self._probe = probe
        self._probes: dict[int, _Probe] = {}

    def leave_out(self, indexes: Collection[int]) -> None:
        """Leave these sources out, which could not be reached when the attempt started."""
        for index in indexes:
            if index not in self._probes:
                self._probes[index] = _Probe(self._shards[index], self._probe)

    @property
    def left_out(self) -> tuple[int, ...]:
        """The indexes of the sources that are left out."""
        return tuple(sorted(self._probes))

    def answers(self, call: Callable[[Shard], T]) -> dict[int, T]:
        """Return what *call* returns for each source that can be reached, by its index.

        Raises: RestartError when one is back; the error of a source when it is not an outage, or there is no other.
        """
        for index, probe in self._probes.items():
            if probe.succeeded:
                raise RestartError(f"source {self._shards[index].place} can be reached again")
        present = [shard for shard in self._shards if shard.index not in self._probes]
        if not present:
            raise RetryableRangefeedError("no source can be reached")
        results = on_each(present, call)
        found, errors = {}, {}
        for shard, result in zip(present, results, strict=True):
            if isinstance(result, CdcError):
                errors[shard.index] = result
            else:
                found[shard.index] = result
        for error in errors.values():
            if not found or not is_outage_of(error):
                raise error
            log.warning("source unreachable, skipping it; resolved timestamps are on hold: %s", error)
        self.leave_out(errors)
        return found


class _Probe:
    """Looks in a thread of its own whether a source can be reached: a connection may hang."""

    def __init__(self, shard: Shard, probe: Callable[[Shard], object]) -> None:
        self._shard = shard
        self._probe = probe
        self._outcome: bool | None = False
        """None while a thread looks."""
        self._next = time.monotonic() + _PROBE_S

    @property
    def succeeded(self) -> bool:
        if self._outcome is False and time.monotonic() >= self._next:
            self._outcome = None
            threading.Thread(target=copy_context().run, args=[self._poll], daemon=True, name="cdc-shard-probe").start()
        return self._outcome is True

    def _poll(self) -> None:
        try:
            self._probe(self._shard)
        except Exception as error:
            log.debug("source %s cannot be reached: %s", self._shard.place, error)
            self._next = time.monotonic() + _PROBE_S
            self._outcome = False
        else:
            self._outcome = True
