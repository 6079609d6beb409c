"""Rows that the encoder cannot write: the sink has taken nothing of that call, and goes on."""

from __future__ import annotations

from cdc_conformance.sinks.refusing import REFUSED, Refusing
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import EncodeError, RowBatch, Sink, Timestamp

__all__ = ["Unencodable"]


class Unencodable:
    """Promises about EncodeError. The engine gives the same rows again in smaller parts, to the same sink."""

    def test_what_the_encoder_raises_leaves_emit_as_it_is(self, rig: SinkRig) -> None:
        """The EncodeError for a row comes out of the `emit` that was given the row, with the encoder's own text.

        The engine looks for the row in that batch, and puts it aside or stops. A sink that catches the error drops rows
        in silence; one that encodes only in `flush` leaves nobody able to say which batch it was.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(around=Refusing), versions([REFUSED, 1])
        rig.begin(sink, batch)
        error = failure_of(lambda: sink.emit(batch))
        assert isinstance(error, EncodeError), (
            f"a row could not be encoded; emit must let EncodeError out, not {error!r}"
        )
        assert str(REFUSED) in str(error), f"the error must name the key of the row, as the encoder's did, not: {error}"

    def test_nothing_of_a_batch_that_cannot_be_encoded_was_taken(self, readable: SinkRig) -> None:
        """An `emit` that raises EncodeError has added nothing: given again in parts, its other rows are there once.

        And they are counted once. Encode all of a batch before anything of it is counted, queued or written.
        """
        rig = readable
        rig.start(ORDERS)
        batch = versions([1, 2, REFUSED, 3])
        sink = rig.open(around=Refusing)
        rig.begin(sink, batch)
        failure_of(lambda: sink.emit(batch))
        sink.emit(batch.slice(0, 2))
        sink.emit(batch.slice(3))
        flushed = sink.flush()
        rig.close(sink)
        assert flushed.messages == 3, (
            f"a batch of 4 rows failed, 3 of them were given again in parts, but flush counted {flushed.messages}"
        )
        seen = rig.read()
        missing = seen.missing(rig.rows(batch.slice(0, 2), batch.slice(3)))
        assert not missing, f"the rows of a batch that failed were given again in parts, but {missing}"
        repeated = seen.repeated()
        assert not repeated, f"the rows of a batch that failed were given again in parts, and {repeated}"

    def test_a_sink_goes_on_after_a_row_that_cannot_be_encoded(self, readable: SinkRig) -> None:
        """Rows emitted before an EncodeError and after it are delivered by the next `flush` of that sink, in order.

        What came before is still on its way: an error of one call is no reason to throw it away.
        """
        rig = readable
        rig.start(ORDERS)
        before, after = versions(range(6)), versions(range(6), at=100)
        later = versions(range(6, 12), at=200)
        sink = rig.open(around=Refusing)
        rig.begin(sink, before, after)
        sink.emit(before)
        failure_of(lambda: sink.emit(versions([REFUSED], at=50)))
        _go_on(sink, after)
        rig.write_to(sink, later, step=1)
        rig.close(sink)
        seen = rig.read()
        missing = seen.missing(rig.rows(before, after, later))
        assert not missing, f"one row between two batches could not be encoded, and of the others {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"one row between two batches could not be encoded, and then {wrong}"

    def test_a_slice_of_nothing_but_bad_rows_leaves_nothing(self, readable: SinkRig) -> None:
        """When no row of a slice could be encoded, `flush` counts nothing, and a consumer finds nothing new.

        Look for files and requests that are begun before there is something to put into them.
        """
        rig = readable
        rig.start(ORDERS)
        sink, batch = rig.open(around=Refusing), versions([REFUSED])
        rig.begin(sink, batch)
        failure_of(lambda: sink.emit(batch))
        flushed = sink.flush()
        rig.close(sink)
        assert (flushed.messages, flushed.files) == (0, 0), f"no row could be encoded, but flush counted {flushed}"
        with rig.reader() as reader:
            there = list(reader.read())
        assert not there, f"no row could be encoded, but a consumer finds {len(there)} messages or files"

    def test_a_row_from_the_dead_letters_arrives_though_it_is_old(self, readable: SinkRig) -> None:
        """A row that was put aside and is sent again later arrives, behind newer versions of its key and their mark.

        Its `updated` is below the slice's `lower`, the one exception. Whoever sends rows again knows that they are old;
        a sink that leaves out what is older than what it has makes a repair impossible.
        """
        rig = readable
        rig.start(ORDERS)
        rig.write(versions(range(4), at=100))
        mark = Timestamp(AT.wall + 200)
        rig.resolve(mark)
        old = versions([2], at=10, note="old ")
        rig.expect(old)
        with rig.opened(epoch=2) as sink:
            sink.begin(rig.slice_from(Timestamp(mark.wall + 1), step=0))
            sink.emit(old)
            sink.flush()
        missing = rig.read().missing(rig.rows(old))
        assert not missing, f"a row that had been put aside was sent again, but {missing}"


def _go_on(sink: Sink, batch: RowBatch) -> None:
    for call in (lambda: sink.emit(batch), sink.flush):
        error = failure_of(call)
        assert error is None, f"a sink must go on after an EncodeError, but the next call raised {error!r}"
