"""Destinations that accept nothing for a while, without failing."""

from __future__ import annotations

from typing import Any

from cdc_conformance.promises import requires
from cdc_conformance.rows import Change, rows
from cdc_conformance.side_effects import Background, resident_bytes
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_core import RowBatch, Timestamp
from cdc_core.delivery.delivery import FLUSH_BYTES

__all__ = ["Stalls"]

_LIMIT_S = 60.0
_ROW_BYTES = 64 * 1024
_BATCH_ROWS = 16


class Stalls:
    """Promises about waiting."""

    @requires("stall", "acknowledgements must be slow")
    def test_flush_waits_for_acknowledgement(self, readable: SinkRig, disturbance: Any, watch_s: float) -> None:
        """While the destination acknowledges nothing, `flush` does not return. Afterwards all rows are there.

        It may raise when it has waited long enough. A flush that stops waiting without an error, or that only waits
        until rows are sent, is not a barrier.
        """
        readable.start(ORDERS)
        sink, batch = readable.open_sink(), versions(range(6))
        with disturbance.stalled():
            flushing = Background(lambda: readable.write_with(sink, batch))
            early = flushing.ended(within_s=watch_s) and flushing.error is None
        assert not early, "flush returned while the destination acknowledged nothing"
        assert flushing.ended(within_s=_LIMIT_S), f"flush still waits {_LIMIT_S:g} s after the end of the stall"
        readable.close(sink)
        if flushing.error is None:
            readable.assert_arrived(batch, after="flush waited for a slow destination and returned")

    @requires("stall", "the destination must accept nothing for a while")
    def test_memory_is_bounded_while_the_destination_stalls(
        self, rig: SinkRig, disturbance: Any, memory_bound_bytes: int, watch_s: float
    ) -> None:
        """While the destination accepts nothing, the sink waits or raises before it holds `memory_bound_bytes`.

        Rows come as fast as the source can be read. An unbounded queue exhausts the executor's memory. If the sink may
        refuse rows, the test flushes it whenever the rows take 32 MB, as the engine does.
        """
        rig.start(ORDERS)
        sink, accepted = rig.open_sink(), [0]
        before = resident_bytes()

        def fill() -> None:
            rig.begin(sink)
            flushed = 0
            while accepted[0] < 2 * memory_bound_bytes:
                batch = _large_batch(accepted[0])
                sink.emit(batch)
                accepted[0] += batch.nbytes
                if rig.registration.refuses_rows and accepted[0] - flushed >= FLUSH_BYTES:
                    sink.flush()
                    flushed = accepted[0]

        with disturbance.stalled():
            filling = Background(fill)
            seen = -1
            while accepted[0] != seen:  # until it ends or makes no progress
                seen = accepted[0]
                if filling.ended(within_s=watch_s):
                    break
            took, grown = accepted[0], resident_bytes() - before
        assert filling.ended(within_s=_LIMIT_S), f"the sink still waits {_LIMIT_S:g} s after the end of the stall"
        assert took < 2 * memory_bound_bytes or grown < memory_bound_bytes // 4, (
            f"the destination accepted nothing, but the sink took {took} bytes of rows and the process grew by {grown};"
            f" emit or flush must wait or raise before the sink holds {memory_bound_bytes}"
        )

    @requires("stall", "the destination must accept nothing for a while")
    def test_close_does_not_wait_for_a_stalled_destination(
        self, rig: SinkRig, disturbance: Any, close_limit_s: float, watch_s: float
    ) -> None:
        """`close` discards what was not flushed and releases connections within `close_limit_s`, stalled or not.

        The engine closes a sink when a slice failed or a changefeed stops, and a close that waits for the destination
        delays that. `close` promises no delivery. Where `emit` itself waits, `close` comes after it.
        """
        rig.start(ORDERS)
        sink, batch = rig.open_sink(), versions(range(6))
        with disturbance.stalled():
            rig.begin(sink, batch)
            emitting = Background(lambda: sink.emit(batch))
            waits = not emitting.ended(within_s=watch_s)
            closing = None if waits else Background(sink.close)
            prompt = closing is None or closing.ended(within_s=close_limit_s)
        assert emitting.ended(within_s=_LIMIT_S), f"emit still waits {_LIMIT_S:g} s after the end of the stall"
        closing = closing or Background(sink.close)
        assert closing.ended(within_s=_LIMIT_S), f"close still waits {_LIMIT_S:g} s after the end of the stall"
        assert prompt, f"close did not return within {close_limit_s:g} s while the destination accepted nothing"
        assert closing.error is None, f"close raised {closing.error!r}"


def _large_batch(number: int) -> RowBatch:
    changes = [Change({"id": number + row, "note": f"{number + row:<{_ROW_BYTES}}"}) for row in range(_BATCH_ROWS)]
    return rows(ORDERS, changes, start=Timestamp(AT.wall + number))
