"""Promises about memory, threads and descriptors."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_conformance.encoders.form import Form
from cdc_conformance.encoders.messages import history, written
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.side_effects import Resources as Opened
from cdc_core import Encoder, RowBatch

__all__ = ["Resources"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_MULTIPLE, _SLACK_BYTES = 16, 48 * 1024 * 1024
_KEPT_BYTES = 160 * 1024


class Resources:
    """An encoder lives as long as its worker."""

    def test_memory_is_a_multiple_of_the_batch(self, rig: EncoderRig, topic: str) -> None:
        """Encoding takes at most 16 times the memory of the batch, plus 48 MiB.

        Look for data that is copied for each row.
        """
        batch = _large(300, width=4000)
        most = _MULTIPLE * batch.nbytes + _SLACK_BYTES
        for form in rig.one_of_each_output(rows=True):
            encoder = rig.encoder(form)
            written(encoder, batch.slice(0, 10), topic, form)
            taken = _peak_of(partial(written, encoder, batch, topic, form))
            assert taken <= most, (
                f"{form}: encoding {batch.nbytes:,} bytes took {taken:,} bytes of memory, more than {most:,}"
            )

    def test_encoded_batches_are_released(self, rig: EncoderRig, topic: str) -> None:
        """The encoder releases the memory of a batch with its messages. An encoder encodes millions of batches.

        Look for caches by key or value, and for results that are attributes of the encoder.
        """
        for form in rig.one_of_each_output(rows=True):
            kept = _kept_by(partial(_encode_large, rig.encoder(form), topic, form))
            assert kept <= _KEPT_BYTES, f"{form}: {kept:,} bytes of memory were not released after eight batches"

    def test_no_thread_or_descriptor_leaks(self, rig: EncoderRig, topic: str) -> None:
        """Encoders have no `close`, so they share or close what they open.

        The first encoder of a process may open what all encoders share, such as a connection. Ten more must leave
        nothing open.
        """
        for form in rig.one_of_each_output(rows=True):

            def use(form: Form = form) -> None:
                encoder = rig.encoder(form)
                encoder.check([(_ORDERS, topic)])
                written(encoder, history(_ORDERS), topic, form)
                if not form.scans_only:
                    encoder.encode_resolved(topic, history(_ORDERS).latest())

            use()
            before = Opened.now()
            for _ in range(10):
                use()
            left = before.more()
            assert not left, f"{form}: ten encoders left this open: {left}"


def _large(count: int, first: int = 0, *, width: int = 500) -> RowBatch:
    return rows(_ORDERS, [Change({"id": n, "note": f"{n:09}" + "x" * width}) for n in range(first, first + count)])


def _encode_large(encoder: Encoder, topic: str, form: Form, first: int) -> None:
    written(encoder, _large(30, first, width=1500), topic, form)


def _peak_of(work: Callable[[], object]) -> int:
    """Return the peak growth of the process during *work*, in bytes, including the result."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("this system does not report the peak memory of a process")
    reset.write_text("5")
    before = _status(status, "VmRSS")
    result = work()
    grown = _status(status, "VmHWM") - before
    del result
    return grown


def _status(path: Path, name: str) -> int:
    (line,) = (line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _kept_by(work: Callable[[int], object]) -> int:
    """Return the bytes that the last eight of ten batches of different rows did not release."""
    for n in range(2):
        work(n * 1000)
    tracemalloc.start()
    try:
        before = _allocated()
        for n in range(2, 10):
            work(n * 1000)
        if _allocated() - before > _KEPT_BYTES:  # The garbage collector may release it.
            gc.collect()
        return _allocated() - before
    finally:
        tracemalloc.stop()


def _allocated() -> int:
    return int(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())
