"""Destinations that fail: what a sink raises, and that nothing is lost when the destination is available again."""

from __future__ import annotations

from typing import Any

from cdc_conformance.promises import requires
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_core import CdcError, RetryableError

__all__ = ["Failures"]

_LONGEST_SENTENCE = 500


class Failures:
    """Promises about errors and outages."""

    @requires("disturbance", "the destination must fail")
    def test_an_outage_is_retryable(self, rig: SinkRig, disturbance: Any) -> None:
        """While the destination is down, `emit` or `flush` raises RetryableSinkError, and the engine tries again.

        A TerminalError would end the changefeed because of an outage. Without an error, rows would be lost.
        """
        rig.start(ORDERS)
        sink, batch = rig.open_sink(), versions(range(3))
        with disturbance.broken():
            error = failure_of(lambda: rig.write_with(sink, batch))
        assert isinstance(error, RetryableError), (
            f"the destination was down, so emit or flush must raise a RetryableError, not {error!r}"
        )

    @requires("disturbance", "the destination must fail")
    def test_a_new_sink_delivers_after_an_outage(self, readable: SinkRig, disturbance: Any) -> None:
        """A slice fails, the destination is available again, and a new sink delivers the slice, complete and in order.

        Nothing but the failed sink may remember the failure: no pool, no circuit breaker, no lock.
        """
        readable.start(ORDERS)
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
        delivers it. A stale connection or file must not swallow it.
        """
        readable.start(ORDERS)
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
        """The destination is down for one batch of a slice and available for the next one, and the sink stays open.

        A call that raises ends the slice, and a new sink repeats it. If none raises, every row is there, in order. Look
        for retries that let later rows pass, and for a failed request that is never sent again.
        """
        readable.start(ORDERS)
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        sink = readable.open_sink()
        readable.begin(sink, *batches)
        sink.emit(batches[0])
        with disturbance.broken():
            error = failure_of(lambda: sink.emit(batches[1]))
        error = error or failure_of(lambda: (sink.emit(batches[2]), sink.flush()))
        failure_of(lambda: readable.close(sink))
        if error is not None:
            assert isinstance(error, RetryableError), f"during an outage, emit or flush must not raise {error!r}"
            readable.write(*batches, epoch=2)
        readable.assert_arrived(
            *batches, after="the destination was down for the second of three batches", in_order=True
        )

    @requires("disturbance", "the destination must fail")
    def test_all_errors_are_cdc_errors(self, rig: SinkRig, disturbance: Any) -> None:
        """Every call translates what the client library raises into a CdcError.

        The engine acts on the type: configuration, rows, retryable, terminal. Translate at the edge of the plugin,
        with `raise … from error`.
        """
        rig.start(ORDERS)
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
        rig.start(ORDERS)
        with disturbance.broken():
            for call in (
                lambda: rig.write_with(rig.open_sink(), versions(range(3))),
                lambda: rig.open_resolved_sink().emit_resolved(AT),
            ):
                text = str(failure_of(call) or "none")
                assert text.strip(), "an error must say what happened, but its text is empty"
                assert "\n" not in text, f"an error must be one line, not {text!r}"
                assert len(text) <= _LONGEST_SENTENCE, f"an error must be one sentence, not {len(text)} long: {text}"
