"""Messages that may be too large for their topic, and what to say when they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import CdcError, RefusedRowsError, RetryableSinkError
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch, shown_key
from cdc_core.schema import TableName
from cdc_sink_kafka.failures import Failure

__all__ = ["Sizes", "Watched"]

_LARGE = 16 * 1024
"""Where a topic's limit cannot be read, messages from this size on are remembered."""
_ROOM = 128
"""Bytes that a message takes beside its key and value, and a batch of messages besides them, at most."""
_MOST_SUSPECTS = 1000

_split: dict[tuple[str, str], int | None] = {}
"""Topics, by their brokers and name, that refused a batch of several messages in this process, with their limits."""


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Rows with large messages."""

    topic: str
    table: TableName
    encoded: pa.Array
    keys: pa.StructArray
    numbers: npt.NDArray[np.int64]
    """Of the rows, counted since the last flush."""
    nbytes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a batch of messages weighs."""

    nbytes: int
    """Of keys and values, without those of `unsendable` messages."""
    unsendable: Mapping[int, str]
    """Messages that are too large to be sent at all, and why, by their index."""


class Sizes:
    """Keeps batches below the topics' limits, and knows which rows exceed them."""

    def __init__(self, brokers: str, limits: Mapping[str, int | None], *, options: Mapping[str, int]) -> None:
        """Take the *limits* of topics, None for one that could not be read, and those that *options* set by name."""
        self._brokers = brokers
        self._limits = limits
        self._option, self._most = min(options.items(), key=lambda option: option[1])
        self._suspects: deque[_Suspects] = deque(maxlen=_MOST_SUSPECTS)
        self._one_by_one = any(_split.get((brokers, topic), 0) == limit for topic, limit in limits.items())

    def properties(self, wanted: int | None) -> dict[str, int]:
        """Return what keeps batches, of *wanted* bytes if it were for the user, so small that no topic refuses them."""
        if self._one_by_one:
            return {"batch.num.messages": 1}
        limits = [limit - _ROOM for limit in self._limits.values() if limit is not None]
        smallest = min([*limits, _DEFAULT_BATCH if wanted is None else wanted])
        return {"batch.size": max(1, smallest)}

    def watch(
        self, rows: RowBatch, batch: MessageBatch, headers: npt.NDArray[np.int64] | None = None, *, first: int = 0
    ) -> Watched:
        """Return what *batch* weighs; its large messages are remembered until `forget`.

        *headers* are the bytes of each message's headers, *first* is the number of the first row since the last flush.
        """
        nbytes = _lengths(batch.value) + _lengths(batch.key)
        total = int(nbytes.sum())
        whole = nbytes if headers is None else nbytes + headers
        limit = self._limits.get(batch.topic)
        most = int(whole.max(initial=0))
        unsendable: dict[int, str] = {}
        if most + _ROOM > self._most:
            for place in np.flatnonzero(whole > self._most - _ROOM).tolist():
                row = _row(rows.schema.name, rows.shown_key(place), int(whole[place]))
                unsendable[place] = f"{row}, and {self._option} allows {self._most}: raise that, or leave the table out"
                total -= int(nbytes[place])
                whole[place] = 0
        if most > (limit or _LARGE) - _ROOM:
            places = np.flatnonzero(whole > (limit or _LARGE) - _ROOM)
            taken = pa.array(places)
            self._suspects.append(
                _Suspects(
                    batch.topic,
                    rows.schema.name,
                    batch.key.take(taken),
                    rows.column("key").take(taken),
                    first + places,
                    whole[places],
                )
            )
        return Watched(nbytes=total, unsendable=unsendable)

    def forget(self) -> None:
        """Everything watched was delivered."""
        self._suspects.clear()

    def explain(self, failure: Failure) -> CdcError | None:
        """Return what to say about *failure* when it is one of size, else None."""
        if not failure.too_large:
            return None
        limit = self._limits.get(failure.topic)
        shown = "its limit" if limit is None else f"max.message.bytes = {limit}"
        suspect = self._suspect(failure)
        if failure.messages > 1 and not self._one_by_one:  # several may have been refused one by one
            _split[self._brokers, failure.topic] = limit
            return RetryableSinkError(
                f"topic '{failure.topic}' refused a batch of several messages for its size ({shown}): the step is"
                " repeated with one message in a batch"
            )
        number, row = suspect or (None, f"a message with the key {_text(failure.key)} is too large")
        return RefusedRowsError(
            f"{row}, more than topic '{failure.topic}' takes ({shown}): raise max.message.bytes of the topic, or"
            " compress messages by Compression in kafka_sink_config",
            row=number,
        )

    def _suspect(self, failure: Failure) -> tuple[int, str] | None:
        """Return the row that *failure* is about, by its key, else the largest: its number, and what to say of it."""
        found: tuple[int, int, str] | None = None
        for suspects in self._suspects:
            if suspects.topic != failure.topic:
                continue
            places: Sequence[int] = range(len(suspects.nbytes))
            if failure.key is not None:
                same = pc.equal(suspects.encoded, pa.scalar(failure.key, suspects.encoded.type))
                places = np.flatnonzero(same.to_numpy(zero_copy_only=False)).tolist()
            for place in places:
                nbytes = int(suspects.nbytes[place])
                if found is None or nbytes > found[0]:
                    shown = _row(suspects.table, shown_key(suspects.keys[place]), nbytes)
                    found = nbytes, int(suspects.numbers[place]), shown
        return None if found is None else found[1:]


_DEFAULT_BATCH = 1_000_000


def _row(table: TableName, key: object, nbytes: int) -> str:
    return f"the message of the row with key {key} of table {table} has {nbytes} bytes"


def _text(key: bytes | None) -> str:
    if key is None:
        return "(none)"
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.binary_length(values)
    if lengths.null_count:
        lengths = lengths.fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
