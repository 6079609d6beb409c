"""The engine's own delivery of a slice in which there are bad rows, driven against the sink."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.sinks.poison import BAD, Poison
from cdc_conformance.sinks.refusing import REFUSED, Refusing
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.seen import rows_of
from cdc_conformance.sinks.tables import ORDERS
from cdc_core import CdcError, RowBatch
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.delivery import Delivery

__all__ = ["DeadLetters"]

_BATCHES = 7
_BY_KEY = pytest.param("key", marks=requires("refusal", "the destination must refuse single rows"))
_BY_SIZE = pytest.param("size", marks=requires("row_limit", "the destination must have a limit"))


class DeadLetters:
    """What all promises about bad rows come to."""

    @pytest.fixture(params=["encoder", _BY_KEY, _BY_SIZE])
    def poison(self, request: pytest.FixtureRequest, rig: SinkRig) -> Poison:
        """Rows that are bad for the encoder, and for the destination in each way that the capabilities name."""
        if request.param == "key":
            return Poison("key", rig, disturbance=request.getfixturevalue("disturbance"))
        if request.param == "size":
            return Poison("size", rig, limit_bytes=request.getfixturevalue("row_limit_bytes"))
        return Poison("encoder", rig)

    def test_bad_rows_are_put_aside_and_all_others_arrive(self, readable: SinkRig, poison: Poison) -> None:
        """With dead letters, a slice with many bad rows ends well: exactly those are put aside, all others arrive once.

        In order, and counted. The engine looks for the bad rows by giving the sink smaller and smaller parts, so there
        may be many errors in a row: a sink does not count them. The simpler promises about bad rows, if one of them is
        broken too, say more.
        """
        rig = readable
        rig.start(ORDERS)
        bad = REFUSED if poison.way == "encoder" else BAD[0]
        batches = [poison.batch([1, 2, bad, 3, number + 10], at=100 * number) for number in range(_BATCHES)]
        good = [part for batch in batches for part in (batch.slice(0, 2), batch.slice(3))]
        sink = rig.open(around=Refusing)
        aside = _Aside()
        delivery = Delivery(sink, aside, owner=f"sink '{rig.registration.name}'")
        rig.expect(*good)
        with poison.at_work():
            try:
                delivery.begin(rig.slice_of(*batches))
                for batch in batches:
                    delivery.emit(batch)
                flushed = delivery.flush()
            except CdcError as error:
                pytest.fail(f"a slice with bad rows must end well with dead letters, but it ended with {error!r}")
        rig.close(sink)
        wanted = [(bad, batch.column("updated")[2].as_py()["wall"]) for batch in batches]
        assert aside.rows == wanted, f"the bad rows are {wanted}, by key and time, but put aside were {aside.rows}"
        seen = rig.read()
        missing = seen.missing(rig.rows(*good))
        assert not missing, f"only the bad rows were put aside, but {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"bad rows were put aside, and of the others {wrong}"
        assert flushed.messages == sum(map(len, good)), (
            f"{sum(map(len, good))} rows were delivered beside the bad ones, but flush counted {flushed.messages}"
        )


class _Aside:
    """Takes bad rows; none of a later time has to wait for them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def put_aside(self, bad: BadRow) -> None:
        (row,) = rows_of(bad.row, topic="")
        self.rows.append((row.key[0], row.updated.wall))

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        del rows
        return ()
