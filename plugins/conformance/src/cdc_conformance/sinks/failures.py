"""Destinations that fail, or accept nothing for a while: what a sink raises, and that nothing is lost."""

from __future__ import annotations

from typing import Any

from cdc_conformance.promises import requires
from cdc_conformance.rows import Change, rows
from cdc_conformance.side_effects import Background, failure_of, resident_bytes
from cdc_conformance.sinks.rig import AT, ORDERS, SinkRig, versions
from cdc_core import CdcError, RetryableError, RowBatch, Timestamp
from cdc_core.delivery.delivery import FLUSH_BYTES

_LONGEST_SENTENCE = 500
_LIMIT_S = 60.0
_ROW_BYTES = 64 * 1024
_BATCH_ROWS = 16


class Failures:
    """Promises about errors and outages."""

    @requires("disturbance", "the destination must fail")
    def test_an_outage_is_retryable(self, rig: SinkRig, disturbance: Any) -> None:
        """While the destination is down, `emit` or `flush` raises RetryableSinkError, and the engine tries again.

        A TerminalError would end the changefeed because of an outage. Without an error, rows would be lost.
        """
        sink, batch = rig.open_sink(), versions(range(3))
        with disturbance.broken():
            error = failure_of(lambda: rig.write_with(sink, batch))
        assert isinstance(error, RetryableError), (
            f"the destination was down, so emit or flush must raise a RetryableError, not {error!r}"
        )

    @requires("disturbance", "the destination must fail")
    def test_a_new_sink_delivers_after_an_outage(self, readable: SinkRig, disturbance: Any) -> None:
        """A slice fails, the destination is available again, and a new sink delivers the slice, complete and in order.

        Only the failed sink may remember the failure: not a pool, a circuit breaker or a lock.
        """
        batches = [versions(range(6)), versions(range(6), at=100)]
        with disturbance.broken():
            failing = readable.open_sink()
            error = failure_of(lambda: readable.write_with(failing, *batches))
            assert error is not None, "the destination was down, but neither emit nor flush raised an error"
        failure_of(lambda: readable.close(failing))
        error = failure_of(lambda: readable.write(*batches, epoch=2))
        assert error is None, f"the destination is available again, but a new sink raised {error!r}"
        readable.assert_arrived(*batches, after="a slice failed and a new sink repeated it", in_order=True)

    @requires("disturbance", "the destination must restart")
    def test_an_open_sink_survives_a_restart_of_the_destination(self, readable: SinkRig, disturbance: Any) -> None:
        """The destination restarts between two slices of an open sink, and no row is lost.

        The sink either delivers the second slice through a new connection, or raises a RetryableError and a new sink
        delivers it. A stale connection or file must not swallow the slice.
        """
        first, second = versions(range(6)), versions(range(6), at=100)
        sink = readable.open_sink()
        readable.write_with(sink, first)
        with disturbance.broken():
            pass
        error = failure_of(lambda: readable.write_with(sink, second, step=1))
        failure_of(lambda: readable.close(sink))
        if error is not None:
            assert isinstance(error, RetryableError), f"after a restart, emit or flush must not raise {error!r}"
            readable.write(second, epoch=2)
        readable.assert_arrived(first, second, after="the destination restarted between two slices")

    @requires("disturbance", "the destination must fail")
    def test_an_outage_within_a_slice_loses_and_reorders_nothing(self, readable: SinkRig, disturbance: Any) -> None:
        """The destination restarts between two batches of a slice, or is down for one batch, and the sink stays open.

        A call that raises ends the slice, and a new sink repeats it. If none raises, every row is there, in order. Look
        for retries that let later rows pass, for a failed request that is never sent again, and for a new connection
        that forgets what the old one did not acknowledge.
        """
        _interrupt(readable, disturbance, batches=0, epoch=1)
        _interrupt(readable, disturbance, batches=1, epoch=3)

    @requires("disturbance", "the destination must fail")
    def test_all_errors_are_cdc_errors(self, rig: SinkRig, disturbance: Any) -> None:
        """Every call translates what the client library raises into a CdcError.

        The engine acts on the type: configuration, rows, retryable, terminal. Translate at the edge of the plugin,
        with `raise … from error`.
        """
        with disturbance.broken():
            for name, call in (
                ("prepare", lambda: rig.open_destination().prepare()),
                ("emit or flush", lambda: rig.write_with(rig.open_sink(), versions(range(3)))),
                ("emit_resolved", lambda: rig.open_resolved_sink().emit_resolved(AT)),
            ):
                error = failure_of(call)
                assert error is None or isinstance(error, CdcError), (
                    f"the destination was down, and {name} raised {error!r}, which is not a CdcError"
                )

    @requires("disturbance", "the destination must fail")
    def test_errors_are_one_line(self, rig: SinkRig, disturbance: Any) -> None:
        """The text of an error is one line for users: what failed, where, and what to do. No traceback, no dump."""
        with disturbance.broken():
            for call in (
                lambda: rig.write_with(rig.open_sink(), versions(range(3))),
                lambda: rig.open_resolved_sink().emit_resolved(AT),
            ):
                text = str(failure_of(call) or "none")
                assert text.strip(), "an error must say what happened, but its text is empty"
                assert "\n" not in text, f"an error must be one line, not {text!r}"
                assert len(text) <= _LONGEST_SENTENCE, f"an error must be one sentence, not {len(text)} long: {text}"


class Stalls:
    """Promises about waiting."""

    @requires("stall", "acknowledgements must be slow")
    def test_flush_waits_for_acknowledgement(self, readable: SinkRig, disturbance: Any, watch_s: float) -> None:
        """While the destination acknowledges nothing, `flush` does not return. Afterwards all rows are there.

        It may raise when it has waited long enough. A flush that stops waiting without an error, or that only waits
        until rows are sent, is not a barrier.
        """
        sink, batch = readable.open_sink(), versions(range(6))
        with disturbance.stalled():
            flushing = Background(lambda: readable.write_with(sink, batch))
            early = flushing.ended(within_s=watch_s) and flushing.error is None
        assert not early, "flush returned while the destination acknowledged nothing"
        assert flushing.ended(within_s=_LIMIT_S), f"flush is still waiting {_LIMIT_S:g} s after the end of the stall"
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
        assert filling.ended(within_s=_LIMIT_S), f"the sink is still waiting {_LIMIT_S:g} s after the end of the stall"
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
        sink, batch = rig.open_sink(), versions(range(6))
        with disturbance.stalled():
            rig.begin(sink, batch)
            emitting = Background(lambda: sink.emit(batch))
            waits = not emitting.ended(within_s=watch_s)
            closing = None if waits else Background(sink.close)
            prompt = closing is None or closing.ended(within_s=close_limit_s)
        assert emitting.ended(within_s=_LIMIT_S), f"emit is still waiting {_LIMIT_S:g} s after the end of the stall"
        closing = closing or Background(sink.close)
        assert closing.ended(within_s=_LIMIT_S), f"close is still waiting {_LIMIT_S:g} s after the end of the stall"
        assert prompt, f"close did not return within {close_limit_s:g} s while the destination accepted nothing"
        assert closing.error is None, f"close raised {closing.error!r}"


def _interrupt(readable: SinkRig, disturbance: Any, *, batches: int, epoch: int) -> None:
    """Break the destination after the first of three batches, for as long as the next *batches* are emitted."""
    first, *others = written = [versions(range(6), at=1000 * epoch + 100 * number) for number in range(3)]
    sink = readable.open_sink(epoch=epoch)
    readable.emit(sink, first, step=epoch)
    readable.expect(*others)
    with disturbance.broken():
        error = failure_of(lambda: [sink.emit(batch) for batch in others[:batches]])
    error = error or failure_of(lambda: ([sink.emit(batch) for batch in others[batches:]], sink.flush()))
    failure_of(lambda: readable.close(sink))
    if error is not None:
        assert isinstance(error, RetryableError), f"during an outage, emit or flush must not raise {error!r}"
        readable.write(*written, epoch=epoch + 1, step=epoch)
    down = "for the second of three batches" if batches else "between the first two of three batches"
    readable.assert_arrived(*written, after=f"the destination was down {down}", in_order=True)


def _large_batch(number: int) -> RowBatch:
    changes = [Change({"id": number + row, "note": f"{number + row:<{_ROW_BYTES}}"}) for row in range(_BATCH_ROWS)]
    return rows(ORDERS, changes, start=Timestamp(AT.wall + number))
