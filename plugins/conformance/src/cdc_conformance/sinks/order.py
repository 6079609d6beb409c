"""Order: no older version of a row arrives for the first time after a newer one."""

from __future__ import annotations

from cdc_conformance.rows import Change, rows
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_core import Timestamp

__all__ = ["Order"]


class Order:
    """Promises about the versions of a key."""

    def test_versions_of_a_key_stay_in_order_in_a_slice(self, readable: SinkRig) -> None:
        """Versions of one key in one batch arrive in their order, whatever other keys are between them.

        Every version counts, even one with the values of an earlier version, and one that differs only in the logical
        counter of its time, as in large transactions. Look at what rows are sorted or compared by.
        """
        readable.start(ORDERS)
        changes = [
            Change({"id": number % 5, "note": f"{number // 5 % 2}"}, updated=Timestamp(AT.wall + number // 10, number))
            for number in range(40)
        ]
        batch = rows(ORDERS, changes)
        readable.write(batch)
        readable.assert_arrived(batch, after="8 versions of each of 5 keys were flushed in one batch", in_order=True)

    def test_versions_of_a_key_stay_in_order_across_slices(self, readable: SinkRig) -> None:
        """What a sink flushed earlier comes before what it flushed later, slice after slice.

        Where the output is files, their names must sort in this order.
        """
        readable.start(ORDERS)
        batches = [versions(range(5), at=100 * step) for step in range(4)]
        with readable.closing(readable.open_sink()) as sink:
            for step, batch in enumerate(batches):
                readable.write_with(sink, batch, step=step)
        readable.assert_arrived(*batches, after="one sink flushed four slices", in_order=True)

    def test_a_key_stays_at_one_endpoint(self, readable: SinkRig) -> None:
        """All versions of a key go to one partition, in every slice, sink and attempt: only a partition has an order.

        Choose the partition by a hash of the key's bytes that is the same in every process. Python's `hash()` of text
        and bytes is not.
        """
        readable.start(ORDERS)
        batches = [versions(range(12), at=100 * step) for step in range(5)]
        with readable.closing(readable.open_sink()) as sink:
            for step, batch in enumerate(batches[:3]):
                readable.write_with(sink, batch, step=step)
        readable.crash_after(*readable.calls(batches[3], step=3), "flush")
        readable.write(batches[4], epoch=2)
        endpoints: dict[object, set[object]] = {}
        for message in readable.read().messages:
            if message.row is not None:
                endpoints.setdefault((message.row.topic, message.row.key), set()).add(message.endpoint)
        spread = {key: found for key, found in endpoints.items() if len(found) > 1}
        assert not spread, f"all versions of a key must be at one endpoint, but these keys are at several: {spread}"
