"""Which rows belong to a slice, that all of them arrive, in which order, and whatever process dies."""

from __future__ import annotations

from cdc_conformance.promises import Condition, applies_if, requires
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.fixtures import registered
from cdc_conformance.sinks.rig import AT, ORDERS, USERS, WIDER_ORDERS, SinkRig, versions
from cdc_core import Flushed, RowBatch, Timestamp

_ROUTES = Condition(
    lambda cls: registered(cls).routes, "the sink registers no routes: rows have the topic of their table"
)


class Delivery:
    """Promises about slices."""

    def test_flush_counts_messages(self, rig: SinkRig) -> None:
        """`Flushed.messages` is the number of rows since the previous flush. Reports and metrics use it."""
        sink = rig.open_sink()
        counts = [
            rig.write_with(sink, versions(range(3)), versions(range(3, 5))).messages,
            rig.write_with(sink, versions(range(2), at=100), step=1).messages,
            sink.flush().messages,
        ]
        assert counts == [5, 2, 0], f"5 rows, 2 rows and then none were flushed, but flush counted {counts}"

    def test_flush_counts_bytes(self, rig: SinkRig) -> None:
        """`Flushed.bytes` is the size of what was sent since the previous flush: more for more rows, 0 for none.

        Throughput is computed from this number. Count what is sent, after compression, and start at 0 after each
        `flush`.
        """
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
        sizes = (1, 299, 1100, 17)
        batches = [versions(range(size), at=2000 * number) for number, size in enumerate(sizes)]
        flushed = readable.write(*batches)
        assert flushed.messages == sum(sizes), f"{sum(sizes)} rows were emitted, but flush counted {flushed}"
        readable.assert_arrived(*batches, after="a slice of many rows was flushed", in_order=True)

    def test_rows_of_several_tables_arrive_at_their_topics(self, fresh_readable: SinkRig) -> None:
        """Rows of several tables, mixed in one slice, arrive at the topic of their own table."""
        items = table("items", {"id": INT8, "note": TEXT})
        fresh_readable.start(ORDERS, USERS, items)
        batches = [versions([key], at=key, schema=schema) for key in range(4) for schema in (ORDERS, items, USERS)]
        fresh_readable.write(*batches)
        fresh_readable.assert_arrived(*batches, after="a slice with rows of three tables was flushed")

    @applies_if(_ROUTES)
    def test_rows_arrive_at_the_topic_that_they_have(self, fresh_readable: SinkRig) -> None:
        """Rows with a topic of their own arrive there, not at that of their table. A query with `cdc_topic` gives it.

        Get the topic of a batch from `context.topics().of_rows(rows)`, and accept it in `admit`.
        """
        fresh_readable.start(ORDERS, USERS)
        targets = (USERS, ORDERS, USERS)
        batches = [fresh_readable.routed(versions([key], at=key), like=target) for key, target in enumerate(targets)]
        sink = fresh_readable.open_sink()
        for topic in dict.fromkeys(batch.topic or "" for batch in batches):
            reason = sink.admit(topic)
            assert reason is None, f"a query gave rows the topic of a table, '{topic}', but admit refuses it: {reason}"
        fresh_readable.write_with(sink, *batches)
        fresh_readable.close(sink)
        fresh_readable.assert_arrived(
            *batches, after="rows of table orders were flushed, some with the topic of table users"
        )

    def test_a_schema_change_within_a_slice_is_followed(self, readable: SinkRig) -> None:
        """Batches of two versions of a table alternate in one slice, and each arrives with its own columns.

        Keep nothing about columns from batch to batch without the version: look at `rows.schema` of each batch.
        """
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

        Executors do this all the time, in one process or in several. Rows get lost if two slices share a name, if
        offsets are kept from `begin`, if files are truncated, or if buffers belong to the class or the module.
        """
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


class Flushes:
    """Promises about several calls of `emit` and `flush` between one `begin` and the next."""

    def test_every_flush_of_a_slice_is_a_barrier(self, readable: SinkRig) -> None:
        """Rows are emitted and flushed twice in one slice, the process dies at once, and the second rows are there.

        The first flush must not end the slice: more rows may follow.
        """
        first, second = versions(range(6)), versions(range(6), at=100)
        begin, *_ = readable.calls(first, second)
        readable.crash_after(begin, first, "flush", second, "flush")
        readable.assert_arrived(second, after="the second flush of a slice returned and the process died")

    def test_several_flushes_of_a_slice_overwrite_nothing(self, readable: SinkRig) -> None:
        """What one flush of a slice made durable stays there after the next one, ahead of what the next one adds.

        The first flush uses up a name that is built only from the slice. Count the flushes, and start again in `begin`.
        """
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        with readable.closing(readable.open_sink()) as sink:
            readable.begin(sink, *batches)
            for batch in batches:
                sink.emit(batch)
                sink.flush()
        readable.assert_arrived(*batches, after="a slice was flushed three times", in_order=True)

    def test_each_flush_counts_only_new_rows(self, rig: SinkRig) -> None:
        """Each `Flushed` of a slice counts the rows since the previous flush. There may be none."""
        with rig.closing(rig.open_sink()) as sink:
            rig.begin(sink, versions([1]))
            found: list[Flushed] = []
            for number, size in enumerate((5, 2, 0, 3)):
                if size:
                    sink.emit(versions(range(size), at=100 * number))
                found.append(sink.flush())
        counts = [flushed.messages for flushed in found]
        assert counts == [5, 2, 0, 3], f"5, 2, 0 and 3 rows were flushed in one slice, but flush counted {counts}"


class Order:
    """Promises about the versions of a key."""

    def test_versions_of_a_key_stay_in_order_in_a_slice(self, readable: SinkRig) -> None:
        """Versions of one key in one batch arrive in their order, whatever other keys are between them.

        Every version counts, even one with the values of an earlier version, and one that differs only in the logical
        counter of its time, as in large transactions. Look at what rows are sorted or compared by.
        """
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
        batches = [versions(range(step, 12), at=100 * step) for step in range(5)]  # no key keeps its place
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


class Crashes:
    """Promises about processes that die and slices that are repeated."""

    def test_flush_is_a_barrier(self, readable: SinkRig) -> None:
        """A process dies the moment `flush` returns, without closing anything, and every row is there.

        The engine saves progress after `flush`, so nothing would ever repeat these rows. Look for buffers of files and
        clients, for threads that still send, and for work that is left to `close`.
        """
        batches = [versions(range(6)), versions(range(6), at=100)]
        readable.crash_after(*readable.calls(*batches), "flush")
        readable.assert_arrived(*batches, after="flush returned and the process died")

    def test_a_flushed_but_unreported_slice_can_be_repeated(self, readable: SinkRig) -> None:
        """A process dies after `flush` and before its report. The next attempt repeats this slice and no other.

        `planned_by` is then the epoch of the earlier attempt. Earlier slices stay unchanged, the repeated slice is
        complete, later slices follow, and no version of a key arrives for the first time after a newer one.
        """
        reported, unreported, later = (versions(range(6), at=100 * step) for step in range(3))
        readable.write(reported)
        readable.crash_after(*readable.calls(unreported, step=1), "flush")
        readable.write(unreported, step=1, epoch=2, planned_by=1)
        readable.write(later, step=0, epoch=2)
        readable.assert_arrived(reported, unreported, later, after="a later attempt repeated a slice", in_order=True)

    def test_an_unfinished_slice_can_be_repeated(self, readable: SinkRig) -> None:
        """A sink is closed in the middle of a slice, without `flush`, and a later attempt repeats the slice.

        The visible part of the unfinished slice must be its beginning, so that the repetition keeps the order. `close`
        promises no delivery: if `close` still sends some of the rows, it may send only the newest.
        """
        batches = [versions(range(6), at=100 * number) for number in range(3)]
        with readable.closing(readable.open_sink()) as sink:
            readable.emit(sink, *batches)
        readable.write(*batches, epoch=2)
        readable.assert_arrived(
            *batches, after="a slice was not finished and a later attempt repeated it", in_order=True
        )

    def test_a_dead_process_blocks_nothing(self, readable: SinkRig) -> None:
        """A process dies in the middle of a slice, before `flush`, and a later attempt repeats the slice at once.

        Locks, leases and incomplete files of a dead process must neither stop the next one nor mix with its rows.
        """
        batches = [versions(range(6)), versions(range(6), at=100)]
        readable.crash_after(*readable.calls(*batches))
        error = failure_of(lambda: readable.write(*batches, epoch=2))
        assert error is None, f"a process died in the middle of a slice, and the next attempt's sink raised {error!r}"
        readable.assert_arrived(
            *batches, after="a process died in the middle of a slice and a later attempt repeated it", in_order=True
        )

    @requires("idempotent", "only some destinations can tell that they already have a row")
    def test_repeated_rows_are_not_duplicated(self, readable: SinkRig) -> None:
        """A process dies after `flush`, a later attempt repeats the slice, and each row is there once."""
        batch = versions(range(6))
        readable.crash_after(*readable.calls(batch), "flush")
        readable.write(batch, epoch=2)
        repeated = readable.read().repeated()
        assert not repeated, f"the sink declares 'idempotent' and a later attempt repeated a slice, but {repeated}"
