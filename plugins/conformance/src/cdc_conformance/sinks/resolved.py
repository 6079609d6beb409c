"""Resolved marks: when one is there, every row up to it is."""

from __future__ import annotations

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, USERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import Timestamp

__all__ = ["Resolved"]


class Resolved:
    """Promises of `emit_resolved`, which a sink of the coordinator's own is asked for."""

    def test_a_resolved_mark_follows_its_rows(self, readable: SinkRig) -> None:
        """At every endpoint each row with `updated` up to the mark stands before it.

        A consumer that reads up to the mark takes what it has for complete. Where output is files, their names must
        sort the mark behind the rows.
        """
        rig = readable
        rig.start(ORDERS)
        marks = [Timestamp(AT.wall + 50), Timestamp(AT.wall + 150)]
        for step, mark in enumerate(marks):
            rig.write(versions(range(12), at=100 * step), step=step)
            rig.resolve(mark)
        seen = rig.read()
        for place in {place for place, _ in seen.marks}:
            resolved = Timestamp()
            for message in seen.at(place):
                resolved = max(resolved, message.mark or resolved)
                assert message.row is None or message.row.updated > resolved, (
                    f"at {place} {message.row} stands behind the mark {resolved}, which says that it was there already"
                )

    def test_a_resolved_mark_reaches_every_endpoint(self, readable: SinkRig) -> None:
        """Each partition of each topic holds the mark, also those that never had a row.

        A consumer waits for the mark of all its partitions; one without holds all of them up.
        """
        rig = readable
        rig.start(ORDERS, USERS)
        with rig.reader() as reader:
            endpoints = set(reader.endpoints())
        named = {topic for topic, _ in endpoints}
        unnamed = set() if None in named else {rig.topic(schema) for schema in (ORDERS, USERS)} - named
        assert not unnamed, (
            f"the reader must name the endpoints of every topic of a prepared destination, before anything is written "
            f"there, but it names {endpoints or 'none'}"
        )
        rig.resolve(AT)
        bare = endpoints - {place for place, mark in rig.read().marks if mark == AT}
        assert not bare, f"emit_resolved returned, but of {len(endpoints)} endpoints these lack the mark: {bare}"

    def test_only_emit_resolved_writes_marks(self, readable: SinkRig) -> None:
        """`flush` makes rows durable and says nothing of time: another slice may still hold earlier rows."""
        rig = readable
        rig.start(ORDERS)
        rig.write(versions(range(6)))
        seen = rig.read()
        assert not seen.marks, f"nobody called emit_resolved, but there are marks: {seen.marks}"
        assert not seen.strange, f"nothing but rows was emitted, but there is {seen.strange[0].text}"

    def test_a_resolved_mark_can_be_repeated(self, readable: SinkRig) -> None:
        """The same timestamp again, from the same sink and from that of a later run, is accepted."""
        rig = readable
        rig.start(ORDERS)
        rig.expect_mark(AT)
        for epoch in (1, 2):
            with rig.opened(epoch=epoch) as coordinator:
                for _ in range(2):
                    error = failure_of(lambda: coordinator.emit_resolved(AT))
                    assert error is None, f"a mark may be repeated, but emit_resolved raised {error!r}"
        assert {mark for _, mark in rig.read().marks} == {AT}, "a repeated mark must still be there, and no other"

    def test_resolved_timestamps_come_back_exactly(self, readable: SinkRig) -> None:
        """Every nanosecond and the logical counter arrive: a mark rounded up promises rows that are not there."""
        rig = readable
        rig.start(ORDERS)
        exact = [Timestamp(1_700_000_000_123_456_789), Timestamp(1_700_000_000_123_456_789, 7)]
        for mark in exact:
            rig.resolve(mark)
        seen = rig.read()
        found = sorted({mark for _, mark in seen.marks})
        strange = f", and also {seen.strange[0].text}" if seen.strange else ""
        assert found == exact, f"the marks {exact} were emitted, but {found} are there{strange}"

    def test_a_resolved_mark_is_durable(self, readable: SinkRig) -> None:
        """A process dies the moment `emit_resolved` returns; the mark is there. Nobody would repeat it."""
        rig = readable
        rig.start(ORDERS)
        rig.expect_mark(AT)
        rig.crash_after(AT)
        found = {mark for _, mark in rig.read().marks}
        assert found == {AT}, f"emit_resolved returned and the process died; the mark must be durable, but {found} is"
