"""Destinations that fail: what a sink raises, and that nothing is lost when they are well again."""

from __future__ import annotations

from typing import Any

from cdc_conformance.promises import requires
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import CdcError, RetryableError

__all__ = ["Failures"]

_LONGEST_SENTENCE = 500


class Failures:
    """Promises about errors."""

    @requires("disturbance", "the destination must fail")
    def test_a_failing_destination_is_worth_a_retry(self, rig: SinkRig, disturbance: Any) -> None:
        """While the destination is down, `emit` or `flush` raises RetryableSinkError: the engine tries again.

        A TerminalError would end the changefeed for an outage, and silence would lose rows.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(), versions(range(3))
        with disturbance.broken():
            error = failure_of(lambda: rig.write_to(sink, batch))
        assert isinstance(error, RetryableError), (
            f"the destination was down, so emit or flush must raise a RetryableError, not {error!r}"
        )

    @requires("disturbance", "the destination must fail")
    def test_a_new_sink_delivers_after_a_failure(self, readable: SinkRig, disturbance: Any) -> None:
        """A slice fails, the destination is well again, and a new sink delivers the slice, whole and in order.

        Nothing may remember the failure beyond the sink that had it: no pool, no breaker, no lock.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(6)), versions(range(6), at=100)]
        with disturbance.broken():
            failing = rig.open()
            error = failure_of(lambda: rig.write_to(failing, *batches))
            assert error is not None, "the destination was down, but neither emit nor flush said so"
        failure_of(lambda: rig.close(failing))
        error = failure_of(lambda: rig.write(*batches, epoch=2))
        assert error is None, f"the destination is well again, but a new sink raised {error!r}"
        seen = rig.read()
        missing = seen.missing(rig.rows(*batches))
        assert not missing, f"a slice failed and was repeated by a new sink, but {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"a slice failed and was repeated by a new sink, and then {wrong}"

    @requires("disturbance", "the destination must restart")
    def test_an_open_sink_loses_nothing_in_a_restart(self, readable: SinkRig, disturbance: Any) -> None:
        """The destination restarts while a sink is open between two slices.

        The next slice either is delivered through a new connection, or raises a RetryableError and is delivered by a
        new sink. A connection or file that has gone stale must not swallow it.
        """
        rig = readable
        rig.start(ORDERS)
        first, second = versions(range(6)), versions(range(6), at=100)
        sink = rig.open()
        rig.write_to(sink, first)
        with disturbance.broken():
            pass
        error = failure_of(lambda: rig.write_to(sink, second, step=1))
        failure_of(lambda: rig.close(sink))
        if error is not None:
            assert isinstance(error, RetryableError), f"a restart must be worth a retry, but it raised {error!r}"
            rig.write(second, epoch=2)
        missing = rig.read().missing(rig.rows(first, second))
        assert not missing, f"the destination restarted between two slices, and {missing}"

    @requires("disturbance", "the destination must fail")
    def test_an_outage_in_a_slice_loses_and_reorders_nothing(self, readable: SinkRig, disturbance: Any) -> None:
        """The destination is away for one batch of a slice and back before the next one, in the same sink.

        A call that raises ends the slice, and a new sink repeats it. Where none does, every row is there, in order.
        Look for retries that let later rows go first, and for a failed request that nobody sends again.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        sink = rig.open()
        rig.begin(sink, *batches)
        sink.emit(batches[0])
        with disturbance.broken():
            error = failure_of(lambda: sink.emit(batches[1]))
        error = error or failure_of(lambda: (sink.emit(batches[2]), sink.flush()))
        failure_of(lambda: rig.close(sink))
        if error is not None:
            assert isinstance(error, RetryableError), f"an outage must be worth a retry, but it raised {error!r}"
            rig.write(*batches, epoch=2)
        seen = rig.read()
        missing = seen.missing(rig.rows(*batches))
        assert not missing, f"the destination was away for the second of three batches, and {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"the destination was away for the second of three batches, and then {wrong}"

    @requires("disturbance", "the destination must fail")
    def test_errors_are_of_the_frameworks_tree(self, rig: SinkRig, disturbance: Any) -> None:
        """Whatever the client library raises leaves the sink as a CdcError, from every call.

        The engine acts by the type: retryable, partial, terminal. Translate at the sink's edge, `raise … from error`.
        """
        rig.start(ORDERS)
        with disturbance.broken():
            for name, call in (
                ("prepare", lambda: rig.open().prepare()),
                ("emit or flush", lambda: rig.write_to(rig.open(), versions(range(3)))),
                ("emit_resolved", lambda: rig.open().emit_resolved(AT)),
            ):
                error = failure_of(call)
                assert error is None or isinstance(error, CdcError), (
                    f"the destination was down, and {name} raised {error!r}, which is no CdcError"
                )

    @requires("disturbance", "the destination must fail")
    def test_errors_are_one_sentence(self, rig: SinkRig, disturbance: Any) -> None:
        """An error's text is one line for a person: what failed, where, and what to do. No traceback, no dump."""
        rig.start(ORDERS)
        with disturbance.broken():
            for call in (
                lambda: rig.write_to(rig.open(), versions(range(3))),
                lambda: rig.open().emit_resolved(AT),
            ):
                text = str(failure_of(call) or "none")
                assert text.strip(), "an error must say what happened, but its text is empty"
                assert "\n" not in text, f"an error must be one line, not {text!r}"
                assert len(text) <= _LONGEST_SENTENCE, f"an error of {len(text)} characters is no sentence: {text}"
