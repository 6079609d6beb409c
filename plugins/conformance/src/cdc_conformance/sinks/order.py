"""Order: no older version of a row appears for the first time behind a newer one."""

from __future__ import annotations

from cdc_conformance.rows import Change, rows
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.seen import Row
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_core import Timestamp

__all__ = ["Order"]


class Order:
    """Promises about the versions of a key."""

    def test_versions_of_a_key_stay_in_order_in_a_slice(self, readable: SinkRig) -> None:
        """Versions of one key in one batch arrive in that order, whatever other keys lie between.

        Every version counts, also one with the values of an earlier version, and one that differs in nothing of its
        time but the logical counter, as those of a large transaction do. Look at what rows are sorted or told apart by.
        """
        rig = readable
        rig.start(ORDERS)
        changes = [
            Change({"id": number % 5, "note": f"{number // 5 % 2}"}, updated=Timestamp(AT.wall + number // 10, number))
            for number in range(40)
        ]
        batch = rows(ORDERS, changes)
        rig.write(batch)
        _in_order(rig, rig.rows(batch))

    def test_versions_of_a_key_stay_in_order_over_slices(self, readable: SinkRig) -> None:
        """What one sink flushed earlier stands before what it flushed later, slice after slice.

        Where output is files, it is their names that must sort so.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(5), at=100 * step) for step in range(4)]
        with rig.opened() as sink:
            for step, batch in enumerate(batches):
                rig.write_to(sink, batch, step=step)
        _in_order(rig, rig.rows(*batches))

    def test_a_key_stays_at_one_endpoint(self, readable: SinkRig) -> None:
        """All versions of a key go to one partition, in whichever slice, sink or run: elsewhere there is no order.

        Partitions are chosen by a hash of the key's bytes that is the same in every process; Python's `hash()` of text
        and bytes is not.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [versions(range(12), at=100 * step) for step in range(5)]
        with rig.opened() as sink:
            for step, batch in enumerate(batches[:3]):
                rig.write_to(sink, batch, step=step)
        rig.crash_after(*rig.calls(batches[3], step=3), "flush")
        rig.write(batches[4], epoch=2)
        places: dict[object, set[object]] = {}
        for message in rig.read().messages:
            if message.row is not None:
                places.setdefault((message.row.topic, message.row.key), set()).add(message.place)
        astray = {key: found for key, found in places.items() if len(found) > 1}
        assert not astray, f"versions of one key must all be at one endpoint, but these are at several: {astray}"


def _in_order(rig: SinkRig, expected: list[Row]) -> None:
    seen = rig.read()
    missing = seen.missing(expected)
    assert not missing, f"every version must be delivered, but {missing}"
    wrong = seen.out_of_order()
    assert not wrong, f"versions of a key must be delivered in order, but {wrong}"
