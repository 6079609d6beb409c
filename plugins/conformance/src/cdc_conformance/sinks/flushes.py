"""Several flushes in one slice: the engine flushes whenever the rows that it keeps take too much memory."""

from __future__ import annotations

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, versions
from cdc_core import Flushed

__all__ = ["Flushes"]


class Flushes:
    """Promises about several calls of `emit` and `flush` between one `begin` and the next."""

    def test_every_flush_of_a_slice_is_a_barrier(self, readable: SinkRig) -> None:
        """Rows are emitted and flushed twice in one slice, the process dies at once, and the second rows are there.

        The first flush must not end the slice: more rows may follow.
        """
        readable.start(ORDERS)
        first, second = versions(range(6)), versions(range(6), at=100)
        begin, *_ = readable.calls(first, second)
        readable.crash_after(begin, first, "flush", second, "flush")
        readable.assert_arrived(second, after="the second flush of a slice returned and the process died")

    def test_several_flushes_of_a_slice_overwrite_nothing(self, readable: SinkRig) -> None:
        """What one flush of a slice made durable stays there after the next one, and before what that one adds.

        The first flush uses up a name that is made of the slice alone. Count the flushes, and start again in `begin`.
        """
        readable.start(ORDERS)
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        with readable.closing(readable.open_sink()) as sink:
            readable.begin(sink, *batches)
            for batch in batches:
                sink.emit(batch)
                sink.flush()
        readable.assert_arrived(*batches, after="a slice was flushed three times", in_order=True)

    def test_each_flush_counts_only_new_rows(self, rig: SinkRig) -> None:
        """Each `Flushed` of a slice counts the rows since the previous flush. There may be none."""
        rig.start(ORDERS)
        with rig.closing(rig.open_sink()) as sink:
            rig.begin(sink, versions([1]))
            found: list[Flushed] = []
            for number, size in enumerate((5, 2, 0, 3)):
                if size:
                    sink.emit(versions(range(size), at=100 * number))
                found.append(sink.flush())
        counts = [flushed.messages for flushed in found]
        assert counts == [5, 2, 0, 3], f"5, 2, 0 and 3 rows were flushed in one slice, but flush counted {counts}"
