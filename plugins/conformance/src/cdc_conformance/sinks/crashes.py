"""Processes that die: nothing that was flushed is lost, and repetition does no harm."""

from __future__ import annotations

from cdc_conformance.promises import requires
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, versions

__all__ = ["Crashes"]


class Crashes:
    """Promises about processes that die and slices that are repeated."""

    def test_flush_is_a_barrier(self, readable: SinkRig) -> None:
        """A process dies the moment `flush` returns, without closing anything, and every row is there.

        The engine saves progress after `flush`, so nothing would ever repeat these rows. Look for buffers of files and
        clients, for threads that still send, and for work that is left to `close`.
        """
        readable.start(ORDERS)
        batches = [versions(range(6)), versions(range(6), at=100)]
        readable.crash_after(*readable.calls(*batches), "flush")
        readable.assert_arrived(*batches, after="flush returned and the process died")

    def test_a_flushed_but_unreported_slice_can_be_repeated(self, readable: SinkRig) -> None:
        """A process dies after `flush` and before its report. The next attempt repeats this slice and no other.

        `planned_by` then is the epoch of the earlier attempt. Earlier slices stay unchanged, the repeated slice is
        complete, later slices follow, and no version of a key arrives for the first time after a newer one.
        """
        readable.start(ORDERS)
        reported, unreported, later = (versions(range(6), at=100 * step) for step in range(3))
        readable.write(reported)
        readable.crash_after(*readable.calls(unreported, step=1), "flush")
        readable.write(unreported, step=1, epoch=2, planned_by=1)
        readable.write(later, step=0, epoch=2)
        readable.assert_arrived(reported, unreported, later, after="a later attempt repeated a slice", in_order=True)

    def test_an_unfinished_slice_can_be_repeated(self, readable: SinkRig) -> None:
        """A sink is closed in the middle of a slice, without `flush`, and a later attempt repeats the slice.

        What became visible of the unfinished slice must be its beginning, so that the repetition keeps the order.
        `close` promises no delivery: a `close` that still sends some of its rows may send the newest alone.
        """
        readable.start(ORDERS)
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        with readable.closing(readable.open_sink()) as sink:
            readable.emit(sink, *batches)
        readable.write(*batches, epoch=2)
        readable.assert_arrived(
            *batches, after="a slice was not finished and a later attempt repeated it", in_order=True
        )

    def test_a_dead_process_blocks_nothing(self, readable: SinkRig) -> None:
        """A process dies in the middle of a slice, before `flush`, and a later attempt repeats the slice at once.

        Locks, leases and incomplete files of a dead process must not stop the next one, nor mix with its rows.
        """
        readable.start(ORDERS)
        batches = [versions(range(6)), versions(range(6), at=100)]
        readable.crash_after(*readable.calls(*batches))
        error = failure_of(lambda: readable.write(*batches, epoch=2))
        assert error is None, f"a process died in the middle of a slice, and the next attempt's sink raised {error!r}"
        readable.assert_arrived(
            *batches, after="a process died in the middle of a slice and a later attempt repeated it", in_order=True
        )

    @requires("idempotent", "only some destinations can tell that they have a row already")
    def test_repeated_rows_are_not_duplicated(self, readable: SinkRig) -> None:
        """A process dies after `flush`, a later attempt repeats the slice, and each row is there once."""
        readable.start(ORDERS)
        batch = versions(range(6))
        readable.crash_after(*readable.calls(batch), "flush")
        readable.write(batch, epoch=2)
        repeated = readable.read().repeated()
        assert not repeated, f"the sink declares 'idempotent' and a later attempt repeated a slice, but {repeated}"
