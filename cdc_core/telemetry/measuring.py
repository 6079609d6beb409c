"""What is measured of the rows of a slice: once for each batch, in its Arrow arrays, and what encoding them takes."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.encoder import encoded
from cdc_core.file_body import FileBody
from cdc_core.messages import MessageBatch
from cdc_core.rows import Op, RowBatch
from cdc_core.telemetry.metrics import BATCH_ROWS, COMMIT_LATENCY, MESSAGE_BYTES
from cdc_core.telemetry.stages import ENCODE, measured_stages, stage
from cdc_core.telemetry.tally import Tally
from cdc_core.timestamp import Timestamp
from cdc_core.wrapped_encoder import WrappedBody, WrappedEncoder

_SCAN = np.uint8(Op.SCAN)


class CommitLatency:
    """Measures from the commit of the rows of one slice until they are durable."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._waiting: list[tuple[int, int]] = []

    def emitted(self, rows: RowBatch) -> None:
        """Note a batch that the sink got."""
        self._tally.observe(BATCH_ROWS, len(rows))
        changed = rows.column("op").to_numpy() != _SCAN
        count = int(np.count_nonzero(changed))
        if count:
            wall = rows.column("updated").field("wall").to_numpy()
            oldest = (wall if count == len(rows) else wall[changed]).min()
            self._waiting.append((int(oldest), count))

    def flushed(self) -> None:
        """Count the batches since the last call: they are durable now."""
        now = time.time_ns()
        for oldest, count in self._waiting:
            self._tally.observe(COMMIT_LATENCY, max(0.0, (now - oldest) / 1e9), times=count)
        self._waiting.clear()


class TimedEncoder(WrappedEncoder):
    """Encodes as another encoder does, at the stage `encode`, and counts the sizes of values. A tombstone has none."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        with stage(ENCODE):
            batch = encoded(self._encoder, rows, topic=topic)
            stages = measured_stages()
            if stages is not None:
                if isinstance(batch.value, pa.BinaryArray | pa.LargeBinaryArray):
                    lengths = pc.fill_null(pc.binary_length(batch.value), 0)
                    stages.tally.observe_all(MESSAGE_BYTES, lengths.to_numpy())
                if stages.trace is not None:
                    stages.trace.reached("encoded", rows)
            return batch

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        with stage(ENCODE):
            return super().encode_resolved(topic, timestamp)

    def open_body(self, topic: str) -> FileBody:
        with stage(ENCODE):
            return _TimedBody(super().open_body(topic))


class _TimedBody(WrappedBody):
    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        with stage(ENCODE):
            written = super().write(rows)
            stages = measured_stages()
            if stages is not None and stages.trace is not None:
                stages.trace.reached("encoded", rows)
            return written

    def finish(self) -> bytes | pa.Buffer:
        with stage(ENCODE):
            return super().finish()
