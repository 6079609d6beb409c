"""The engine's own delivery of a slice with bad rows, run against the sink."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc_conformance.sinks.poison import BAD, BY_KEY, BY_SIZE, Poison
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.seen import rows_of
from cdc_conformance.sinks.tables import ORDERS
from cdc_conformance.sinks.unencodable import REFUSED, RefusingEncoder
from cdc_core import CdcError, RowBatch
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.delivery import Delivery

__all__ = ["DeadLetters"]

_BATCHES = 7


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
        rig.start(ORDERS)
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
