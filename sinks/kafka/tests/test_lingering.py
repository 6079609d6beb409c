from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cdc_sink_kafka.sink import KafkaSink

from cdc_core import RowBatch, SliceInfo


def test_flush_does_not_wait_for_a_batch_to_be_filled(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"kafka_sink_config": '{"Flush": {"Frequency": "120s"}}'})
    started = time.monotonic()
    sink.begin(first_slice)
    sink.emit(rows([1, 2, 3]))
    sink.flush()
    assert time.monotonic() - started < 60
    assert len(received()) == 3
