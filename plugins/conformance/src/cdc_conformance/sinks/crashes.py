"""What holds when processes die: nothing that was flushed is lost, and what is repeated does no harm."""

from __future__ import annotations

from cdc_conformance.promises import requires
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, versions
from cdc_conformance.sinks.watching import failure_of

__all__ = ["Crashes"]


class Crashes:
    """Promises about death and repetition."""

    def test_flush_is_a_barrier(self, readable: SinkRig) -> None:
        """A process dies the moment `flush` returns, without closing anything; every row is there.

        Progress is saved on the strength of `flush`, so nothing would ever repeat these rows. Look for buffers of files
        and clients, for threads that still send, and for work left to `close`.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(6)), versions(range(6), at=100)]
        rig.crash_after(*rig.calls(*batches), "flush")
        missing = rig.read().missing(rig.rows(*batches))
        assert not missing, f"flush returned and the process died; what was emitted must be durable, but {missing}"

    def test_a_slice_that_was_written_but_not_reported_can_be_repeated(self, readable: SinkRig) -> None:
        """A process dies between `flush` and its report: the next run repeats the slice, and nothing else.

        It says so by `planned_by`, the epoch of the run before. Earlier slices stay as they are, the repeated one is
        whole, later ones follow, and no version of a key appears for the first time behind a newer one.
        """
        rig = readable
        rig.start(ORDERS)
        reported, written, later = (versions(range(6), at=100 * step) for step in range(3))
        rig.write(reported)
        rig.crash_after(*rig.calls(written, step=1), "flush")
        rig.write(written, step=1, epoch=2, planned_by=1)
        rig.write(later, step=0, epoch=2)
        seen = rig.read()
        missing = seen.missing(rig.rows(reported, written, later))
        assert not missing, f"a slice was repeated by a later run, and of all that was flushed {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"a slice was repeated by a later run, and then {wrong}"

    def test_a_slice_that_broke_off_can_be_repeated(self, readable: SinkRig) -> None:
        """A sink is closed in the middle of a slice, without `flush`; a later run repeats the slice.

        What of the broken slice became visible must be its beginning, so that the repetition keeps the order. `close`
        promises no delivery: a close that still sends some of what it holds may send the newest alone.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        with rig.opened() as sink:
            rig.begin(sink, *batches)
            for batch in batches:
                sink.emit(batch)
        rig.write(*batches, epoch=2)
        seen = rig.read()
        missing = seen.missing(rig.rows(*batches))
        assert not missing, f"the repeated slice must be whole, but {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"a slice broke off and was repeated, and then {wrong}"

    def test_a_dead_process_holds_nothing_up(self, readable: SinkRig) -> None:
        """A process dies in the middle of a slice, before `flush`; a later run repeats the slice at once.

        Locks, leases and half-written files of the dead must not stop the living, nor get between their rows.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(6)), versions(range(6), at=100)]
        rig.crash_after(*rig.calls(*batches))
        error = failure_of(lambda: rig.write(*batches, epoch=2))
        assert error is None, f"a process died in the middle of a slice, and the next run's sink raised {error!r}"
        seen = rig.read()
        missing = seen.missing(rig.rows(*batches))
        assert not missing, f"a process died in the middle of a slice, which was repeated, but {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"a process died in the middle of a slice, which was repeated, and then {wrong}"

    @requires("idempotent", "only some destinations can tell that they have a row already")
    def test_repeated_rows_are_not_there_twice(self, readable: SinkRig) -> None:
        """A process dies after `flush`, a later run repeats the slice, and each row is there once."""
        rig = readable
        rig.start(ORDERS)
        batch = versions(range(6))
        rig.crash_after(*rig.calls(batch), "flush")
        rig.write(batch, epoch=2)
        repeated = rig.read().repeated()
        assert not repeated, f"the sink declares 'idempotent', and a later run repeated a slice, but {repeated}"
