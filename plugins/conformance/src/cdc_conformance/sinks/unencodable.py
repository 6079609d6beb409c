"""Rows that cannot be encoded, and the delivery of slices with bad rows by the engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc_conformance.filtering_encoder import FilteringEncoder
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.refusals import BAD, BY_KEY, BY_SIZE, Poison
from cdc_conformance.sinks.rig import AT, SinkRig, versions
from cdc_conformance.sinks.seen import rows_of
from cdc_core import CdcError, EncodeError, RowBatch, SliceInfo, Timestamp
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.delivery import Delivery

_BATCHES = 7

REFUSED = 47_110_815
"""The value of `id` in the row that cannot be encoded."""


class RefusingEncoder(FilteringEncoder):
    """Raises EncodeError for that row, and encodes all others as another encoder does."""

    def filtered(self, rows: RowBatch) -> RowBatch:
        if any(REFUSED in key.values() for key in rows.column("key").to_pylist()):
            raise EncodeError(f"table {rows.schema.name}, column note: cannot encode the row with key ({REFUSED})")
        return rows


class Unencodable:
    """Promises about EncodeError. The engine passes the same rows again in smaller parts, to the same sink."""

    def test_emit_passes_on_encode_errors(self, rig: SinkRig) -> None:
        """The EncodeError for a row leaves the `emit` that got the row, with the encoder's own text.

        The engine searches that batch for the row. A sink that catches the error drops rows silently. A sink that
        encodes in `flush` hides which batch it was.
        """
        sink, batch = rig.open_sink(wrap_encoder=RefusingEncoder), versions([REFUSED, 1])
        rig.begin(sink, batch)
        error = failure_of(lambda: sink.emit(batch))
        assert isinstance(error, EncodeError), f"the encoder raised EncodeError, but emit raised {error!r}"
        assert str(REFUSED) in str(error), f"the error must name the row's key, as the encoder's error did: {error}"

    def test_emit_takes_nothing_of_a_batch_that_cannot_be_encoded(self, readable: SinkRig) -> None:
        """An `emit` that raises EncodeError adds nothing: when its other rows are emitted again, they are there once.

        They are also counted once. Encode the whole batch before any of it is counted, queued or written.
        """
        batch = versions([1, 2, REFUSED, 3])
        parts = batch.slice(0, 2), batch.slice(3)
        sink = readable.open_sink(wrap_encoder=RefusingEncoder)
        readable.begin(sink, batch)
        failure_of(lambda: sink.emit(batch))
        for part in parts:
            sink.emit(part)
        messages = sink.flush().messages
        readable.close(sink)
        assert messages == 3, f"of 4 rows that failed, 3 were emitted again in parts, but flush counted {messages}"
        after = "the rows of a batch that failed were emitted again in parts"
        repeated = readable.assert_arrived(*parts, after=after).repeated()
        assert not repeated, f"{after}, but {repeated}"

    def test_a_sink_works_after_an_encode_error(self, readable: SinkRig) -> None:
        """The next `flush` delivers what was emitted before an EncodeError and after it, in order.

        An error of one call is no reason to discard the rows of earlier calls.
        """
        before, after = versions(range(6)), versions(range(6), at=100)
        later = versions(range(6, 12), at=200)
        sink = readable.open_sink(wrap_encoder=RefusingEncoder)
        readable.begin(sink, before, after)
        sink.emit(before)
        failure_of(lambda: sink.emit(versions([REFUSED], at=50)))
        for call in (lambda: sink.emit(after), sink.flush):
            error = failure_of(call)
            assert error is None, f"a sink must work after an EncodeError, but the next call raised {error!r}"
        readable.write_with(sink, later, step=1)
        readable.close(sink)
        readable.assert_arrived(
            before, after, later, after="one row between two batches could not be encoded", in_order=True
        )

    def test_a_slice_of_bad_rows_writes_nothing(self, readable: SinkRig) -> None:
        """When no row of a slice can be encoded, `flush` counts nothing, and a consumer sees nothing new.

        Look for files and requests that are started before there is something to put into them.
        """
        sink, batch = readable.open_sink(wrap_encoder=RefusingEncoder), versions([REFUSED])
        readable.begin(sink, batch)
        failure_of(lambda: sink.emit(batch))
        flushed = sink.flush()
        readable.close(sink)
        assert (flushed.messages, flushed.files) == (0, 0), f"no row could be encoded, but flush counted {flushed}"
        with readable.reader() as reader:
            there = list(reader.read())
        assert not there, f"no row could be encoded, but a consumer sees {len(there)} messages or files"

    def test_replayed_dead_letters_arrive_although_they_are_old(self, readable: SinkRig) -> None:
        """A dead letter that is replayed arrives, after newer versions of its key and after their mark.

        Its `updated` is below the `lower` of the slice; this is the one exception. The user who replays rows knows that
        they are old. A sink that skips rows older than those it has makes a repair impossible.
        """
        readable.write(versions(range(4), at=100))
        mark = Timestamp(AT.wall + 200)
        readable.resolve(mark)
        old = versions([2], at=10, note="old ")
        readable.expect(old)
        with readable.closing(readable.open_sink(epoch=2)) as sink:
            sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(mark.wall + 1), replay=True))
            sink.emit(old)
            sink.flush()
        readable.assert_arrived(old, after="a dead letter was replayed")


class DeadLetters:
    """All promises about bad rows, taken together."""

    @pytest.fixture(params=["encoder", BY_KEY, BY_SIZE])
    def any_poison(self, request: pytest.FixtureRequest, rig: SinkRig) -> Poison:
        """Rows that are bad for the encoder, and for the destination in each way that the capabilities declare."""
        return Poison.requested(request, rig)

    def test_bad_rows_become_dead_letters_and_all_others_arrive(self, readable: SinkRig, any_poison: Poison) -> None:
        """With dead letters, a slice with many bad rows succeeds: exactly those become dead letters.

        All others arrive in order and are counted. The engine finds the bad rows by passing smaller and smaller parts,
        so that a sink may see many errors in a row and must not count them. If a simpler promise about bad rows is
        broken too, read that one first.
        """
        rig, poison = readable, any_poison
        bad = REFUSED if poison.way == "encoder" else BAD[0]
        batches = [poison.batch([1, 2, bad, 3, number + 10], at=100 * number) for number in range(_BATCHES)]
        good = [part for batch in batches for part in (batch.slice(0, 2), batch.slice(3))]
        sink = rig.open_sink(wrap_encoder=RefusingEncoder)
        letters = _Letters()
        registration = rig.registration
        delivery = Delivery(sink, letters, owner=f"sink '{registration.name}'", refuses_rows=registration.refuses_rows)
        rig.expect(*good)
        with poison.active():
            try:
                delivery.begin(rig.slice_of(*batches))
                for batch in batches:
                    delivery.emit(batch)
                flushed = delivery.flush()
            except CdcError as error:
                pytest.fail(f"with dead letters, a slice with bad rows must succeed, but it ended with {error!r}")
        rig.close(sink)
        wanted = [(bad, batch.column("updated")[2].as_py()["wall"]) for batch in batches]
        assert letters.rows == wanted, (
            f"the bad rows are {wanted}, by key and time, but the dead letters {letters.rows}"
        )
        rig.assert_arrived(*good, after="the bad rows of a slice became dead letters", in_order=True)
        assert flushed.messages == sum(map(len, good)), (
            f"{sum(map(len, good))} rows were delivered beside the bad ones, but flush counted {flushed.messages}"
        )


class _Letters:
    """Takes bad rows. No later row has to wait for them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def add(self, bad: BadRow) -> None:
        (row,) = rows_of(bad.row, topic="")
        self.rows.append((row.key[0], row.updated.wall))

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        del rows
        return ()
