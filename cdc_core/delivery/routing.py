"""Rows that a query gives a topic: a sink gets them topic by topic, and each topic is admitted before its first row."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.queries.query import TOPIC_COLUMN
from cdc_core.rows import RowBatch
from cdc_core.sink import Sink
from cdc_core.telemetry.stages import QUERY, SINK

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

MAX_TOPIC_BYTES = 1000
"""Longer topics are refused for every sink; the store keeps each of them."""
_NULL = (QUERY, f"its {TOPIC_COLUMN} is null; for a deleted row, only the key and cdc_prev have values")


class Routing:
    """Puts the rows of a slice apart by topic. *admit* returns why a topic cannot be written, None when it can.

    It is called for each topic of a batch before any of its rows is returned, and remembers by itself.
    """

    def __init__(self, admit: Callable[[str], str | None]) -> None:
        self._admit = admit

    def parted(self, rows: RowBatch) -> Iterator[RowBatch | BadRow]:
        """Yield *rows* in batches of one topic, and rows whose topic is refused as bad rows.

        Rows of one topic keep their order. A bad row comes after all rows before it and before all rows after it, so
        that those of its key can wait for it. Raises: whatever *admit* raises.
        """
        if "topic" not in rows.batch.schema.names or not len(rows):
            yield rows
            return
        numbers, reasons = self._numbered(rows)
        start = 0
        bad = np.isin(numbers, list(reasons)) if reasons else np.zeros(len(rows), bool)
        for index in np.flatnonzero(bad).tolist():
            yield from _by_topic(rows.slice(start, index - start), numbers[start:index])
            stage, reason = reasons[int(numbers[index])]
            yield BadRow(row=rows.slice(index, 1), stage=stage, reason=reason)
            start = index + 1
        yield from _by_topic(rows.slice(start), numbers[start:])

    def _numbered(self, rows: RowBatch) -> tuple[npt.NDArray[np.int64], dict[int, tuple[str, str]]]:
        """Return the number of each row's topic, and of the refused ones stage and reason."""
        # as bytes: Spark does not guarantee that texts are UTF-8
        encoded = rows.column("topic").cast(pa.binary()).dictionary_encode()
        numbers = encoded.indices.fill_null(-1).cast(pa.int64()).to_numpy()
        reasons = {-1: _NULL} if encoded.null_count else {}
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            found = self._refusal(topic)
            if found is not None:
                reasons[number] = found
        return numbers, reasons

    def _refusal(self, value: bytes) -> tuple[str, str] | None:
        if not value:
            return QUERY, f"its {TOPIC_COLUMN} is empty"
        if len(value) > MAX_TOPIC_BYTES:
            return QUERY, f"its {TOPIC_COLUMN} has {len(value)} bytes; the maximum is {MAX_TOPIC_BYTES}"
        try:
            topic = value.decode()
        except UnicodeDecodeError:
            return QUERY, f"its {TOPIC_COLUMN}, {value!r}, is not valid UTF-8"
        if "\0" in topic:
            return QUERY, f"its {TOPIC_COLUMN}, {topic!r}, contains a NUL character"
        reason = self._admit(topic)
        return None if reason is None else (SINK, reason)


def _by_topic(rows: RowBatch, numbers: npt.NDArray[np.int64]) -> Iterator[RowBatch]:
    if not len(rows):
        return
    order = np.argsort(numbers, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(order)]
    if len(bounds) == 2:
        yield rows
        return
    for start, end in pairwise(bounds):
        yield RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(order[start:end])))


_MAX_REFUSED = 10_000
_ASK_AGAIN_S = 30.0
"""How long a refusal holds: the user may get a missing right, or someone may create the topic."""


class TopicAdmission:
    """The topics that attempt *epoch* of changefeed *name* may write, as far as one process knows them.

    The order is fixed: the destination can take the topic, then the store has it, durably and under the attempt's
    epoch, then its first row may be delivered. Whatever dies in between, every topic that has rows is in the store, and
    so gets all later resolved marks, although a later attempt may never give that topic again: a scan that starts over
    reads newer rows. The other way round is harmless: a topic without rows gets marks, or was created and stays empty.

    A topic costs one call of each sink and one of the store, not one for each batch; one that was refused costs a call
    of the sink again after half a minute. *most* is what max_topics allows. *clock* returns seconds.
    """

    def __init__(
        self,
        store: ProgressStore,
        *,
        name: str,
        epoch: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._name = name
        self._epoch = epoch
        self._most = most
        self._saved: set[str] | None = None
        self._clock = clock
        self._refused: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Reasons, and when each ends, the earliest first."""
        self._admitted: WeakKeyDictionary[Sink, set[str]] = WeakKeyDictionary()

    def admit(self, topic: str, *, sink: Sink, fenced: Sink) -> str | None:
        """Return when rows can be delivered to *topic*; or the sink's reason why they cannot.

        *fenced* is *sink* as long as the attempt may emit. Raises: TerminalError when there would be too many topics;
        FencedError; RetryableError; whatever the sink raises.
        """
        admitted = self._admitted.setdefault(sink, set())
        if topic in admitted:
            return None
        now = self._clock()
        reason, ends = self._refused.get(topic, ("", now))
        if now < ends:
            return reason
        self._refused.pop(topic, None)
        if self._saved is None:
            self._saved = set(self._store.topics.of(self._name))
        if topic not in self._saved and len(self._saved) >= self._most:
            self._save(topic)  # raises, unless another process has added it
        refusal = fenced.admit(topic)
        if refusal is not None:
            self._refused[topic] = (refusal, self._clock() + _ASK_AGAIN_S)
            if len(self._refused) > _MAX_REFUSED:
                self._refused.popitem(last=False)
            return refusal
        if topic not in self._saved:
            self._save(topic)
        admitted.add(topic)
        return None

    def close(self) -> None:
        self._store.close()

    def _save(self, topic: str) -> None:
        self._saved = set(self._store.topics.add(self._name, self._epoch, topic, most=self._most))
