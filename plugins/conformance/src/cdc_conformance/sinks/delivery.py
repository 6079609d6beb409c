"""Which rows belong to a slice, and that none is lost on the way."""

from __future__ import annotations

from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, USERS, versions
from cdc_core import RowBatch, Timestamp

__all__ = ["Delivery"]

_WIDER = table("orders", {"id": INT8, "note": TEXT, "added": INT8}, version=2)


class Delivery:
    """Promises about slices."""

    def test_flush_counts_messages(self, rig: SinkRig) -> None:
        """`Flushed.messages` is the number of rows since the flush before: reports and metrics are made of it."""
        rig.start(ORDERS)
        sink = rig.open()
        counts = [
            rig.write_to(sink, versions(range(3)), versions(range(3, 5))).messages,
            rig.write_to(sink, versions(range(2), at=100), step=1).messages,
            sink.flush().messages,
        ]
        assert counts == [5, 2, 0], f"5 rows, 2 rows and then none were flushed, but flush counted {counts}"

    def test_flush_counts_bytes(self, rig: SinkRig) -> None:
        """`Flushed.bytes` is what went out since the flush before: more for more rows, and nothing for none.

        Throughput is shown by it. Count what is sent, after compression, and begin again with each `flush`.
        """
        rig.start(ORDERS)
        sink = rig.open()
        many = versions(range(2000))
        counts = [
            rig.write_to(sink, versions([1])).bytes,
            rig.write_to(sink, many, step=1).bytes,
            sink.flush().bytes,
        ]
        assert 0 < counts[0] < counts[1], f"1 row and then 2000 rows were flushed, but flush counted {counts[:2]} bytes"
        assert counts[2] == 0, f"nothing was emitted since the flush before, but flush counted {counts[2]} bytes"

    def test_many_rows_come_back(self, readable: SinkRig) -> None:
        """Many rows in batches of very different sizes all arrive, in order: one row, many, some more.

        Requests, files and chunks of a sink's own have borders; look at what happens to the rest behind the last one.
        """
        rig = readable
        rig.start(ORDERS)
        sizes = (1, 299, 1100, 17)
        batches = [versions(range(size), at=2000 * number) for number, size in enumerate(sizes)]
        flushed = rig.write(*batches)
        assert flushed.messages == sum(sizes), f"{sum(sizes)} rows were emitted, but flush counted {flushed}"
        seen = rig.read()
        missing = seen.missing(rig.rows(*batches))
        assert not missing, f"every row of a large slice must arrive, but {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"the rows of a large slice must arrive in order, but {wrong}"

    def test_several_tables_share_a_slice(self, readable: SinkRig) -> None:
        """Rows of several tables, mixed in one slice, arrive each at its own table's topic."""
        rig = readable
        items = table("items", {"id": INT8, "note": TEXT})
        rig.start(ORDERS, USERS, items)
        batches = [versions([key], at=key, schema=schema) for key in range(4) for schema in (ORDERS, items, USERS)]
        rig.write(*batches)
        missing = rig.read().missing(rig.rows(*batches))
        assert not missing, f"each row of a slice must arrive at the topic of its table, but {missing}"

    def test_a_schema_change_in_a_slice_is_followed(self, readable: SinkRig) -> None:
        """Batches of two versions of a table in one slice arrive each with its own columns, and back again.

        Nothing about columns may be kept from batch to batch without the version: look at `rows.schema` of each.
        """
        rig = readable
        rig.start(ORDERS)
        batches: list[RowBatch] = []
        for number in range(4):
            start = Timestamp(AT.wall + number)
            if number % 2:
                batches.append(rows(_WIDER, [Change({"id": number, "note": "new", "added": 7})], start=start))
            else:
                batches.append(rows(ORDERS, [Change({"id": number, "note": "old"})], start=start))
        rig.write(*batches)
        missing = rig.read().missing(rig.rows(*batches))
        assert not missing, f"rows of two versions of a table must arrive with their own columns, but {missing}"

    def test_sinks_of_one_run_do_not_disturb_each_other(self, readable: SinkRig) -> None:
        """Two sinks of a run write two slices of a step at the same time; all rows of both arrive.

        Executors do that all the time, in one process or in many. Names that two slices share, positions remembered
        from `begin`, truncated files and buffers of the class or the module lose rows here.
        """
        rig = readable
        rig.start(ORDERS)
        shares = versions(range(6)), versions(range(6, 12))
        first, second = rig.open(), rig.open()
        rig.begin(first, shares[0])
        first.emit(shares[0].slice(0, 3))
        rig.begin(second, shares[1], index=1)
        second.emit(shares[1].slice(0, 3))
        first.emit(shares[0].slice(3))
        counts = [first.flush().messages]
        rig.close(first)
        second.emit(shares[1].slice(3))
        counts.append(second.flush().messages)
        rig.close(second)
        missing = rig.read().missing(rig.rows(*shares))
        assert not missing, f"two sinks wrote slices of one step at the same time, and {missing}"
        assert counts == [6, 6], f"two sinks were given 6 rows each at the same time, but they flushed {counts}"

    def test_begin_forgets_what_was_not_flushed(self, readable: SinkRig) -> None:
        """Rows of a slice that was not flushed are none of the next slice: they are neither counted nor behind its own.

        They may have become visible before `begin`, but nothing holds on to them: the engine repeats their slice.
        """
        rig = readable
        rig.start(ORDERS)
        abandoned, kept = versions([1, 2, 3]), versions([4, 5], at=100)
        with rig.opened() as sink:
            rig.begin(sink, abandoned)
            sink.emit(abandoned)
            flushed = rig.write_to(sink, kept, step=1)
        assert flushed.messages == 2, f"a slice of 2 rows followed an abandoned one, but flush counted {flushed}"
        missing = rig.read().missing(rig.rows(kept))
        assert not missing, f"the slice after an abandoned one must be whole, but {missing}"
