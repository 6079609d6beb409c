"""A sink's life: constructed, used, closed, and what must hold around that."""

from __future__ import annotations

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_conformance.sinks.watching import failure_of, watched
from cdc_core import CdcError, Flushed

__all__ = ["Lifecycle"]


class Lifecycle:
    """Promises about constructing and closing."""

    def test_a_constructor_has_no_side_effects(self, rig: SinkRig) -> None:
        """Constructing a sink connects to nothing, starts nothing and touches no file.

        The engine constructs sinks to ask for topics, in many processes. Connect in `check`, `prepare` or at the first
        row; keep clients in a `cached_property`.
        """
        job = rig.job()
        job.open_sink()  # imports what there is to import
        with watched() as effects:
            job.open_sink()
        assert str(effects) == "nothing", f"a constructor has no side effects, but this one {effects}"

    def test_an_unused_sink_can_be_closed(self, rig: SinkRig) -> None:
        """`close` works on a sink that was only constructed: the engine closes what it opened, used or not."""
        error = failure_of(rig.open().close)
        assert error is None, f"close of a sink that was never used must do nothing, but it raised {error!r}"

    def test_closing_twice_is_harmless(self, rig: SinkRig) -> None:
        """A second `close` does nothing. After an error the engine may close what is closed already."""
        rig.start(ORDERS)
        sink = rig.open()
        rig.write_to(sink, versions([1]))
        sink.close()
        error = failure_of(sink.close)
        assert error is None, f"close may be called twice, but the second time it raised {error!r}"

    def test_a_slice_can_be_repeated_by_another_sink_of_the_run(self, readable: SinkRig) -> None:
        """A task that failed is tried again in the same run: a new sink gets the same slice under the same numbers.

        Both times count: open, write, close, open again, write the same, go on. Neither may a name that is taken be an
        error, nor may the repeated slice be left out as known, because the first try may not have got to its end.
        """
        rig = readable
        rig.start(ORDERS)
        first, second = versions(range(4)), versions(range(4), at=100)
        with rig.opened() as sink:
            rig.begin(sink, first)
            sink.emit(first.slice(0, 2))
        rig.write(first)
        rig.write(second, step=1)
        seen = rig.read()
        missing = seen.missing(rig.rows(first, second))
        assert not missing, f"a slice that broke off and is repeated in the same run must be whole, but {missing}"

    def test_use_after_close_is_an_error(self, rig: SinkRig) -> None:
        """`begin`, `emit`, `flush` and `emit_resolved` of a closed sink raise a CdcError, say TerminalSinkError.

        A closed sink that takes rows in silence loses them.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(), versions([1])
        rig.begin(sink, batch)
        sink.close()
        for name, call in (
            ("begin", lambda: rig.begin(sink, batch)),
            ("emit", lambda: sink.emit(batch)),
            ("flush", sink.flush),
            ("emit_resolved", lambda: sink.emit_resolved(AT)),
        ):
            error = failure_of(call)
            assert isinstance(error, CdcError), f"{name} of a closed sink must raise a CdcError, not {error!r}"

    def test_rows_before_begin_are_an_error(self, rig: SinkRig) -> None:
        """`emit` without `begin` raises a CdcError: rows that belong to no slice cannot be repeated or named."""
        rig.start(ORDERS)
        sink = rig.open()
        error = failure_of(lambda: sink.emit(versions([1])))
        assert isinstance(error, CdcError), f"emit before begin must raise a CdcError, not {error!r}"

    def test_an_empty_batch_is_accepted(self, rig: SinkRig) -> None:
        """A batch without rows, between others or alone, adds nothing and is no error: filters leave such behind."""
        rig.start(ORDERS)
        sink, batch = rig.open(), versions([1, 2])
        rig.begin(sink, batch)
        for part in (batch.slice(0, 0), batch, batch.slice(2, 0)):
            error = failure_of(lambda part=part: sink.emit(part))  # type: ignore[misc]
            assert error is None, f"a batch of {len(part)} rows must be accepted, but emit raised {error!r}"
        assert sink.flush().messages == 2, "empty batches must add no messages"

    def test_a_slice_without_rows_can_be_flushed(self, rig: SinkRig) -> None:
        """`flush` after `begin` alone returns Flushed(): a quiet table's slice has no rows."""
        rig.start(ORDERS)
        sink = rig.open()
        rig.begin(sink)
        flushed = sink.flush()
        assert flushed == Flushed(), f"nothing was emitted, so flush must return Flushed(), not {flushed!r}"

    def test_repr_is_harmless(self, rig: SinkRig) -> None:
        """`repr` and `str` of a sink work before use, in use and after `close`, and touch nothing."""
        rig.start(ORDERS)
        sink = rig.open()
        for state in ("new", "in use", "closed"):
            with watched() as effects:
                error = failure_of(lambda: (repr(sink), str(sink)))
            assert error is None, f"repr of a sink that is {state} raised {error!r}"
            assert str(effects) == "nothing", f"repr of a sink that is {state} {effects}"
            if state == "new":
                rig.write_to(sink, versions([1]))
            elif state == "in use":
                sink.close()
