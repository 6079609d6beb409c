"""Which rows belong to a slice, and that all of them arrive."""

from __future__ import annotations

from typing import Any

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Condition, applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, USERS, WIDER_ORDERS, versions
from cdc_core import RowBatch, SinkRegistration, Timestamp

__all__ = ["Delivery"]


def _routes(cls: type[Any]) -> bool:
    registration = registration_of(cls, "sink")
    assert isinstance(registration, SinkRegistration)
    return registration.routes


class Delivery:
    """Promises about slices."""

    def test_flush_counts_messages(self, rig: SinkRig) -> None:
        """`Flushed.messages` is the number of rows since the previous flush. Reports and metrics use it."""
        rig.start(ORDERS)
        sink = rig.open_sink()
        counts = [
            rig.write_with(sink, versions(range(3)), versions(range(3, 5))).messages,
            rig.write_with(sink, versions(range(2), at=100), step=1).messages,
            sink.flush().messages,
        ]
        assert counts == [5, 2, 0], f"5 rows, 2 rows and then none were flushed, but flush counted {counts}"

    def test_flush_counts_bytes(self, rig: SinkRig) -> None:
        """`Flushed.bytes` is the size of what was sent since the previous flush: more for more rows, 0 for none.

        Throughput is computed from it. Count what is sent, after compression, and start at 0 after each `flush`.
        """
        rig.start(ORDERS)
        sink = rig.open_sink()
        many = versions(range(2000))
        counts = [
            rig.write_with(sink, versions([1])).bytes,
            rig.write_with(sink, many, step=1).bytes,
            sink.flush().bytes,
        ]
        assert 0 < counts[0] < counts[1], f"1 row and then 2000 rows were flushed, but flush counted {counts[:2]} bytes"
        assert counts[2] == 0, f"nothing was emitted since the previous flush, but flush counted {counts[2]} bytes"

    def test_a_large_slice_arrives_in_order(self, readable: SinkRig) -> None:
        """Many rows in batches of very different sizes all arrive, in order.

        Requests, files and chunks of a sink have boundaries. Look at what happens to the rest after the last boundary.
        """
        readable.start(ORDERS)
        sizes = (1, 299, 1100, 17)
        batches = [versions(range(size), at=2000 * number) for number, size in enumerate(sizes)]
        flushed = readable.write(*batches)
        assert flushed.messages == sum(sizes), f"{sum(sizes)} rows were emitted, but flush counted {flushed}"
        readable.assert_arrived(*batches, after="a slice of many rows was flushed", in_order=True)

    def test_rows_of_several_tables_arrive_at_their_topics(self, readable: SinkRig) -> None:
        """Rows of several tables, mixed in one slice, arrive at the topic of their own table."""
        items = table("items", {"id": INT8, "note": TEXT})
        readable.start(ORDERS, USERS, items)
        batches = [versions([key], at=key, schema=schema) for key in range(4) for schema in (ORDERS, items, USERS)]
        readable.write(*batches)
        readable.assert_arrived(*batches, after="a slice with rows of three tables was flushed")

    @applies_if(Condition(_routes, "the sink registers no routes: rows have the topic of their table"))
    def test_rows_arrive_at_the_topic_that_they_have(self, readable: SinkRig) -> None:
        """Rows with a topic of their own arrive there, not at that of their table. A query with `cdc_topic` gives it.

        Get the topic of a batch from `context.topics().of_rows(rows)`, and accept it in `admit`.
        """
        readable.start(ORDERS, USERS)
        targets = (USERS, ORDERS, USERS)
        batches = [readable.routed(versions([key], at=key), like=target) for key, target in enumerate(targets)]
        sink = readable.open_sink()
        for topic in dict.fromkeys(batch.topic or "" for batch in batches):
            reason = sink.admit(topic)
            assert reason is None, f"a query gave rows the topic of a table, '{topic}', but admit refuses it: {reason}"
        readable.write_with(sink, *batches)
        readable.close(sink)
        readable.assert_arrived(*batches, after="rows of table orders were flushed, some with the topic of table users")

    def test_a_schema_change_within_a_slice_is_followed(self, readable: SinkRig) -> None:
        """Batches of two versions of a table alternate in one slice, and each arrives with its own columns.

        Keep nothing about columns from batch to batch without the version: look at `rows.schema` of each batch.
        """
        readable.start(ORDERS)
        batches: list[RowBatch] = []
        for number in range(4):
            start = Timestamp(AT.wall + number)
            if number % 2:
                change = Change({"id": number, "note": "new", "added": 7})
                batches.append(rows(WIDER_ORDERS, [change], start=start))
            else:
                batches.append(rows(ORDERS, [Change({"id": number, "note": "old"})], start=start))
        readable.write(*batches)
        readable.assert_arrived(*batches, after="a slice with rows of two versions of a table was flushed")

    def test_parallel_sinks_do_not_interfere(self, readable: SinkRig) -> None:
        """Two sinks of an attempt write two slices of a step at the same time, and all rows of both arrive.

        Executors do so all the time, in one process or in several. Rows get lost by names that two slices share, by
        offsets that are kept from `begin`, by truncated files, and by buffers of the class or the module.
        """
        readable.start(ORDERS)
        batches = versions(range(6)), versions(range(6, 12))
        first, second = readable.open_sink(), readable.open_sink()
        readable.begin(first, batches[0])
        first.emit(batches[0].slice(0, 3))
        readable.begin(second, batches[1], index=1)
        second.emit(batches[1].slice(0, 3))
        first.emit(batches[0].slice(3))
        counts = [first.flush().messages]
        readable.close(first)
        second.emit(batches[1].slice(3))
        counts.append(second.flush().messages)
        readable.close(second)
        readable.assert_arrived(*batches, after="two sinks wrote slices of one step at the same time")
        assert counts == [6, 6], f"two sinks got 6 rows each at the same time, but flush counted {counts}"
