"""Several flushes in one slice: the engine flushes whenever the rows that it keeps take too much memory."""

from __future__ import annotations

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, versions
from cdc_core import Flushed

__all__ = ["Flushes"]


class Flushes:
    """Promises about `emit` and `flush` several times over between one `begin` and the next."""

    def test_every_flush_of_a_slice_is_a_barrier(self, readable: SinkRig) -> None:
        """Rows are emitted and flushed twice in one slice, and the process dies at once; the second ones are there too.

        The second flush is no formality, and the first does not close anything: rows may follow.
        """
        rig = readable
        rig.start(ORDERS)
        first, second = versions(range(6)), versions(range(6), at=100)
        begin, *_ = rig.calls(first, second)
        rig.crash_after(begin, first, "flush", second, "flush")
        missing = rig.read().missing(rig.rows(second))
        assert not missing, (
            f"a slice was flushed twice and the process died; the second flush is one too, but {missing}"
        )

    def test_several_flushes_of_a_slice_overwrite_nothing(self, readable: SinkRig) -> None:
        """What one flush of a slice made durable is still there after the next one, and stands before what that adds.

        A name that is made of the slice alone is taken by the first flush. Count on from flush to flush; only `begin`
        starts again.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        with rig.opened() as sink:
            rig.begin(sink, *batches)
            for batch in batches:
                sink.emit(batch)
                sink.flush()
        seen = rig.read()
        missing = seen.missing(rig.rows(*batches))
        assert not missing, f"a slice was flushed three times, and of its rows {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"a slice was flushed three times, and then {wrong}"

    def test_flushes_of_a_slice_count_what_is_new(self, rig: SinkRig) -> None:
        """Each `Flushed` of a slice tells of the rows since the flush before it, which may be none."""
        rig.start(ORDERS)
        with rig.opened() as sink:
            rig.begin(sink, versions([1]))
            found: list[Flushed] = []
            for number, size in enumerate((5, 2, 0, 3)):
                if size:
                    sink.emit(versions(range(size), at=100 * number))
                found.append(sink.flush())
        counts = [flushed.messages for flushed in found]
        assert counts == [5, 2, 0, 3], f"5, 2, no and 3 rows were flushed in one slice, but flush counted {counts}"
