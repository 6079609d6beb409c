"""Destinations that fail: what a sink raises, and that nothing is lost when they are well again."""

from __future__ import annotations

from typing import Any

from cdc_conformance.promises import requires
from cdc_conformance.rows import Change, rows
from cdc_conformance.sinks.refusing import REFUSED, Refusing
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import CdcError, PartialWriteError, RetryableError

__all__ = ["Failures"]

_MOST_TRIES = 3
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

    def test_a_row_that_cannot_be_encoded_ends_the_slice(self, rig: SinkRig) -> None:
        """What the encoder raises for a row leaves `emit` or `flush` as a CdcError that is not retryable.

        A sink that catches it and goes on drops the row in silence. Let the EncodeError through: it names the row.
        """
        rig.start(ORDERS)
        sink = rig.open(around=Refusing)
        error = failure_of(lambda: rig.write_to(sink, versions([1, 2]), versions([REFUSED, 3], at=100)))
        assert isinstance(error, CdcError), f"a row could not be encoded, so emit or flush must raise, not {error!r}"
        assert not isinstance(error, RetryableError), f"it does not help to try that row again: {error!r}"
        assert str(REFUSED) in str(error), f"the error must name the key of the row, as the encoder's did, not: {error}"

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

    @requires("row_limit", "the destination must have a limit")
    def test_a_row_beyond_the_limit_is_refused_by_name(self, rig: SinkRig, row_limit_bytes: int) -> None:
        """A row larger than the destination takes ends the changefeed with an error that names its table and key.

        It is never left out, and never tried for ever: the error is not retryable, at the latest when the engine has
        tried again.
        """
        rig.start(ORDERS)
        changes = [Change({"id": key, "note": "n" * (row_limit_bytes if key == 4711 else 1)}) for key in (1, 4711, 2)]
        batch = rows(ORDERS, changes)
        error: Exception | None = None
        for epoch in range(1, _MOST_TRIES + 1):
            sink = rig.open(epoch=epoch)
            error = failure_of(lambda: rig.write_to(sink, batch))  # noqa: B023 (called at once)
            failure_of(lambda: rig.close(sink))  # noqa: B023
            if not isinstance(error, RetryableError):
                break
        assert error is not None, f"a row of more than {row_limit_bytes} bytes was neither delivered nor refused"
        assert isinstance(error, CdcError), f"a row that is too large must raise a CdcError, not {error!r}"
        assert not isinstance(error, RetryableError), (
            f"it does not help to try a row again that is too large: {error!r}"
        )
        for what, word in (("table", "orders"), ("key", "4711")):
            assert word in str(error), f"the error must name the {what} of the row that is too large, not: {error}"

    @requires("partial_failure", "the destination must refuse single rows")
    def test_a_partial_failure_names_the_refused_rows(self, rig: SinkRig, disturbance: Any) -> None:
        """`failures` of PartialWriteError has the index in the batch of each refused row, with a reason, no other."""
        rig.start(ORDERS)
        sink, batch = rig.open(), versions(range(6))
        keys = rig.keys(batch)
        with disturbance.refusing([keys[1], keys[4]]):
            error = failure_of(lambda: rig.write_to(sink, batch))
        assert isinstance(error, PartialWriteError), f"two rows were refused, so PartialWriteError, not {error!r}"
        named = sorted(index for index, _ in error.failures)
        assert named == [1, 4], f"rows 1 and 4 of the batch were refused, but the error names {named}"
        assert all(reason for _, reason in error.failures), f"each refused row needs a reason: {error.failures}"

    @requires("partial_failure", "the destination must refuse single rows")
    def test_a_partial_failure_delivers_all_other_rows(self, readable: SinkRig, disturbance: Any) -> None:
        """Rows that a PartialWriteError does not list are delivered when it is raised: nothing repeats them."""
        rig = readable
        rig.start(ORDERS)
        sink, batch = rig.open(), versions(range(6))
        keys = rig.keys(batch)
        with disturbance.refusing([keys[1], keys[4]]):
            failure_of(lambda: rig.write_to(sink, batch))
        rig.close(sink)
        others = [row for number, row in enumerate(rig.rows(batch)) if number not in (1, 4)]
        missing = rig.read().missing(others)
        assert not missing, f"two of six rows were refused, the others count as delivered, but {missing}"
