"""Resolved marks: when a mark is there, every row up to it is there."""

from __future__ import annotations

from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import AT, ORDERS, USERS, SinkRig, versions
from cdc_core import Timestamp

__all__ = ["Resolved"]


class Resolved:
    """Promises of ResolvedSink: `emit_resolved`."""

    def test_a_resolved_mark_follows_its_rows(self, readable: SinkRig) -> None:
        """At every endpoint, each row with `updated` up to the mark comes before the mark.

        A consumer that reads up to the mark treats what it has as complete. Where the output is files, the mark's name
        must sort after the rows' names.
        """
        readable.start(ORDERS)
        marks = [Timestamp(AT.wall + 50), Timestamp(AT.wall + 150)]
        for step, mark in enumerate(marks):
            readable.write(versions(range(12), at=100 * step), step=step)
            readable.resolve(mark)
        seen = readable.read()
        for endpoint in {endpoint for endpoint, _ in seen.marks}:
            resolved = Timestamp()
            for message in seen.at(endpoint):
                resolved = max(resolved, message.mark or resolved)
                assert message.row is None or message.row.updated > resolved, (
                    f"every row up to a mark must come before it, but at {endpoint} {message.row} follows {resolved}"
                )

    def test_a_resolved_mark_reaches_every_endpoint(self, readable: SinkRig) -> None:
        """Each partition of each topic gets the mark, also a partition without rows.

        A consumer waits for the mark of all its partitions, so one partition without the mark blocks it.
        """
        readable.start(ORDERS, USERS)
        with readable.reader() as reader:
            endpoints = set(reader.endpoints())
        named = {topic for topic, _ in endpoints}
        unnamed = set() if None in named else {readable.topic(schema) for schema in (ORDERS, USERS)} - named
        assert not unnamed, (
            "the reader must return the endpoints of every topic after prepare, before anything is written, but it"
            f" returns {endpoints or 'none'}"
        )
        readable.resolve(AT)
        found = {endpoint for endpoint, mark in readable.read().marks if mark == AT}
        assert not endpoints - found, (
            f"emit_resolved returned, but of {len(endpoints)} endpoints these have no mark: {endpoints - found}; the"
            f" reader found marks at {found or 'none'}"
        )

    def test_only_emit_resolved_writes_marks(self, readable: SinkRig) -> None:
        """`flush` writes no mark: another slice may still hold earlier rows."""
        readable.start(ORDERS)
        readable.write(versions(range(6)))
        seen = readable.read()
        assert not seen.marks, f"emit_resolved was not called, but there are marks: {seen.marks}"
        assert not seen.unknown, f"only rows were emitted, but this is there: {seen.unknown[0].text}"

    def test_a_resolved_mark_can_be_repeated(self, readable: SinkRig) -> None:
        """`emit_resolved` accepts the same timestamp again, in the same attempt and in a later one."""
        readable.start(ORDERS)
        readable.expect_mark(AT)
        for epoch in (1, 2):
            with readable.closing(readable.open_resolved_sink(epoch=epoch)) as resolved_sink:
                for _ in range(2):
                    error = failure_of(lambda: resolved_sink.emit_resolved(AT))
                    assert error is None, f"a mark may be repeated, but emit_resolved raised {error!r}"
        found = {mark for _, mark in readable.read().marks}
        assert found == {AT}, f"the mark {AT} was repeated and must be the only one, but the marks are {found}"

    def test_resolved_timestamps_are_exact(self, readable: SinkRig) -> None:
        """Every nanosecond and the logical counter arrive. A mark that is rounded up covers rows that are missing."""
        readable.start(ORDERS)
        exact = [Timestamp(1_700_000_000_123_456_789), Timestamp(1_700_000_000_123_456_789, 7)]
        for mark in exact:
            readable.resolve(mark)
        seen = readable.read()
        found = sorted({mark for _, mark in seen.marks})
        unknown = f", and also {seen.unknown[0].text}" if seen.unknown else ""
        assert found == exact, f"the marks {exact} were emitted, but these arrived: {found}{unknown}"

    def test_a_resolved_mark_is_durable(self, readable: SinkRig) -> None:
        """A process dies the moment `emit_resolved` returns, and the mark is there. Nothing would repeat it."""
        readable.start(ORDERS)
        readable.expect_mark(AT)
        readable.crash_after(AT)
        found = {mark for _, mark in readable.read().marks}
        assert found == {AT}, f"emit_resolved({AT}) returned and the process died, but the marks are {found or 'none'}"
