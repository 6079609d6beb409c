"""Rows that a query gives a topic: a sink gets them topic by topic, and each topic is admitted before its first row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.queries.event_names import TOPIC_COLUMN
from cdc_core.rows import RowBatch
from cdc_core.telemetry.stages import QUERY, SINK

__all__ = ["MAX_TOPIC_BYTES", "Routing"]

MAX_TOPIC_BYTES = 1000
"""Longer topics are refused for every sink; the store keeps each of them."""
_NULL = (QUERY, f"its {TOPIC_COLUMN} is null; of a deleted row, only the key and cdc_prev have values")


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
            return QUERY, f"its {TOPIC_COLUMN} has {len(value)} bytes, and {MAX_TOPIC_BYTES} are allowed"
        try:
            topic = value.decode()
        except UnicodeDecodeError:
            return QUERY, f"its {TOPIC_COLUMN}, {value!r}, is not valid UTF-8"
        if "\0" in topic:
            return QUERY, f"its {TOPIC_COLUMN}, {topic!r}, contains the character zero"
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
