"""Messages that are too large: for the client, for the topic, and what to say about them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import CdcError, MessageBatch, RefusedRowsError, RetryableSinkError, RowBatch, TableName, shown_key
from cdc_sink_kafka.failures import Failure

_LARGE = 16 * 1024
"""When the limit of a topic cannot be read, messages of this size or more are remembered."""
_OVERHEAD = 128
"""The most bytes that a message takes besides key and value, and that a batch takes besides its messages."""
_MAX_SUSPECTS = 1000
_DEFAULT_BATCH = 1_000_000

_one_by_one: dict[tuple[str, str], int | None] = {}
"""Topics, by brokers and name, that refused a batch of several messages in this process, with their limits."""


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Rows with large messages. `indices` count the rows since the last flush."""

    topic: str
    table: TableName
    encoded: pa.Array
    keys: pa.StructArray
    indices: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The size of a batch of messages."""

    nbytes: int
    """Bytes of keys and values, without those of the messages in `unsendable`."""
    unsendable: Mapping[int, str]
    """The messages that are too large for the client, by index, each with the reason."""


class SizeLimits:
    """Keeps batches below the limits of the topics, and finds the rows that exceed a limit."""

    def __init__(self, brokers: str, limits: Mapping[str, int | None], *, options: Mapping[str, int]) -> None:
        """Take the *limits* of topics, None for one that could not be read, and the limits that *options* set."""
        self._brokers = brokers
        self._limits = dict(limits)
        self._option, self._most = min(options.items(), key=lambda option: option[1])
        self._suspects: deque[_Suspects] = deque(maxlen=_MAX_SUSPECTS)
        self._singly = any(_one_by_one.get((brokers, topic), 0) == limit for topic, limit in limits.items())

    def properties(self, wanted: int | None) -> dict[str, int]:
        """Return the properties that make batches small enough for every topic; the user asks for *wanted* bytes."""
        if self._singly:
            return {"batch.num.messages": 1}
        limits = [limit - _OVERHEAD for limit in self._limits.values() if limit is not None]
        smallest = min([*limits, _DEFAULT_BATCH if wanted is None else wanted])
        return {"batch.size": max(1, smallest)}

    def learn(self, topic: str, limit: int | None, *, wanted: int | None) -> bool:
        """Take the *limit* of another topic; return whether `properties` are others now."""
        before = self.properties(wanted)
        self._limits[topic] = limit
        self._singly = self._singly or _one_by_one.get((self._brokers, topic), 0) == limit
        return self.properties(wanted) != before

    def measure(
        self, rows: RowBatch, batch: MessageBatch, headers: npt.NDArray[np.int64] | None = None, *, first: int = 0
    ) -> Measured:
        """Return the size of *batch*. Its large messages are remembered until `forget`.

        *headers* are the bytes of each message's headers. *first* is the index of the first row since the last flush.
        """
        lengths = [pc.fill_null(pc.binary_length(part), 0).to_numpy() for part in (batch.value, batch.key)]
        nbytes = np.add(*lengths, dtype=np.int64)
        total = int(nbytes.sum())
        whole = nbytes if headers is None else nbytes + headers
        limit = self._limits.get(batch.topic)
        most = int(whole.max(initial=0))
        unsendable: dict[int, str] = {}
        if most + _OVERHEAD > self._most:
            for place in np.flatnonzero(whole > self._most - _OVERHEAD).tolist():
                row = _described(rows.schema.name, rows.shown_key(place), int(whole[place]))
                unsendable[place] = (
                    f"{row}, but {self._option} allows {self._most}; raise the limit, or remove the table from the"
                    " changefeed"
                )
                total -= int(nbytes[place])
                whole[place] = 0
        if most > (limit or _LARGE) - _OVERHEAD:
            places = np.flatnonzero(whole > (limit or _LARGE) - _OVERHEAD)
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
        return Measured(nbytes=total, unsendable=unsendable)

    def forget(self) -> None:
        """Forget the large messages: all of them were delivered."""
        self._suspects.clear()

    def explain(self, failure: Failure) -> CdcError | None:
        """Return the error for *failure* when the size is the reason, else None."""
        if not failure.too_large:
            return None
        limit = self._limits.get(failure.topic)
        shown = "its limit" if limit is None else f"max.message.bytes = {limit}"
        suspect = self._suspect(failure)
        if failure.messages > 1 and not self._singly:  # perhaps several single messages were refused
            _one_by_one[self._brokers, failure.topic] = limit
            return RetryableSinkError(
                f"topic '{failure.topic}' refused a batch of several messages because of its size ({shown}); the step"
                " is repeated with one message in each batch"
            )
        index, row = suspect or (None, f"a message with the key {_text(failure.key)} is too large")
        return RefusedRowsError(
            f"{row}, more than topic '{failure.topic}' accepts ({shown}); raise max.message.bytes of the topic, or "
            "set Compression in kafka_sink_config",
            row=index,
        )

    def _suspect(self, failure: Failure) -> tuple[int, str] | None:
        """Return index and description of the row that *failure* is about: by its key, else the largest one."""
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
                    described = _described(suspects.table, shown_key(suspects.keys[place]), nbytes)
                    found = nbytes, int(suspects.indices[place]), described
        return None if found is None else found[1:]


def _described(table: TableName, key: object, nbytes: int) -> str:
    return f"the message of the row with key {key} of table {table} has {nbytes} bytes"


def _text(key: bytes | None) -> str:
    if key is None:
        return "(none)"
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()
