"""An encoder whose calls are the time of the stage `encode`."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.file_body import FileBody
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.telemetry.measuring import note_sizes
from cdc_core.telemetry.stages import ENCODE, measured_stages, stage
from cdc_core.timestamp import Timestamp
from cdc_core.wrapped_encoder import WrappedBody, WrappedEncoder

__all__ = ["TimedEncoder"]


class TimedEncoder(WrappedEncoder):
    """Encodes as another encoder does, at the stage `encode`, and counts the sizes of messages."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        with stage(ENCODE):
            batch = super().encode(rows, topic=topic)
            stages = measured_stages()
            if stages is not None:
                note_sizes(stages.tally, batch)
            _note_encoded(rows)
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
            _note_encoded(rows)
            return written

    def finish(self) -> bytes | pa.Buffer:
        with stage(ENCODE):
            return super().finish()


def _note_encoded(rows: RowBatch) -> None:
    stages = measured_stages()
    if stages is not None:
        for _, traced in stages.traced_rows(rows):
            traced.reached("encoded")
