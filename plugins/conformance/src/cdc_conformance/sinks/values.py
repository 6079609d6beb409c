"""Rows arrive with the values that were emitted, and a resolved mark after every row that it covers."""

from __future__ import annotations

import contextlib
from typing import Any

from cdc_conformance.promises import Condition, applies_if, does_not_apply
from cdc_conformance.rows import EVERY_KIND, TEXT, Change, rows, sample, table
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.fixtures import registered
from cdc_conformance.sinks.rig import AT, ORDERS, USERS, SinkRig, versions
from cdc_core import CdcError, ConfigError, DeleteForm, Envelope, Op, RowBatch, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.envelope import ENVELOPES

_KINDS = table("kinds", EVERY_KIND)
_KEYED = table("keyed", {"id": TEXT, "note": TEXT})
_WITH_TOMBSTONES = [name for name in ENVELOPES if Envelope(name=name).delete is DeleteForm.TOMBSTONE]


def _takes_tombstones(cls: type[Any]) -> bool:
    registration = registered(cls)
    takes = frozenset(_WITH_TOMBSTONES) if registration.envelopes is None else registration.envelopes
    return registration.output == "messages" and not takes.isdisjoint(_WITH_TOMBSTONES)


class Values:
    """Promises about the values in rows."""

    def test_every_value_arrives_unchanged(self, readable: SinkRig) -> None:
        """Rows with a column of every kind are emitted and flushed, and a consumer gets every value unchanged.

        A sink passes on the encoder's bytes. If this fails, look for a conversion to text and back, for separators that
        values may contain, and for columns at the destination that are too narrow.
        """
        batch = rows(
            _KINDS,
            [
                Change({name: sample(type_, number) for name, type_ in EVERY_KIND.items()} | {"id": number})
                for number in range(40)
            ],
        )
        _assert_unchanged(readable, batch)

    def test_nulls_arrive(self, readable: SinkRig) -> None:
        """A row whose columns are all null, except the key, arrives with its nulls, not as empty texts or zeros."""
        _assert_unchanged(readable, rows(_KINDS, [Change({"id": number}) for number in range(3)]))

    def test_unicode_arrives_unchanged(self, readable: SinkRig) -> None:
        """Text in any alphabet, also outside the basic multilingual plane, arrives unchanged, in keys too."""
        texts = ("Grüße", "Ελλάδα", "中文", "\u202eعربى", "🐘👩\u200d🚀", "e\u0301", "\u2028\u0085\ufeff")
        _assert_unchanged(readable, rows(_KEYED, [Change({"id": text, "note": text}) for text in texts]))

    def test_keys_arrive_unchanged(self, readable: SinkRig) -> None:
        """Keys with separators, line breaks and blanks, and long keys, arrive unchanged.

        Consumers identify rows by their keys, so a truncated or altered key is another row. A key that is too long for
        the destination may be refused with a CdcError. Look for keys that become names, columns or headers.
        """
        unusual = ("", " ", "a b", "a,b", "a/b", "a.b", "a\nb", "a\\b", '"', "%2F", "a", "A")
        _assert_unchanged(readable, rows(_KEYED, [Change({"id": key, "note": "unusual"}) for key in unusual]))
        long = rows(_KEYED, [Change({"id": f"{'k' * 300}{end}", "note": "long"}) for end in "ab"])
        error = failure_of(lambda: readable.write(long, step=1))
        if error is None:
            readable.assert_arrived(long, after="the sink accepted two keys of 301 characters")
        else:
            assert isinstance(error, CdcError), f"a key that is too long must raise a CdcError, not {error!r}"

    def test_deletes_arrive(self, readable: SinkRig) -> None:
        """The deletion of a row arrives. Without it, a consumer keeps the row forever."""
        batch = rows(
            ORDERS, [Change({"id": 1, "note": "a"}), Change({"id": 2, "note": "b"}), Change({"id": 1}, op=Op.DELETE)]
        )
        _assert_unchanged(readable, batch)

    def test_scanned_and_updated_rows_arrive(self, readable: SinkRig) -> None:
        """Rows of the initial scan and updated rows arrive like inserted ones: only the encoder looks at the operation.

        Look for a mapping of operations that lacks one.
        """
        changes = [Change({"id": number, "note": op.name}, op=op) for number, op in enumerate((Op.SCAN, Op.UPDATE))]
        _assert_unchanged(readable, rows(ORDERS, changes))

    @applies_if(Condition(_takes_tombstones, "the sink accepts no envelope that has tombstones"))
    def test_tombstones_arrive(self, readable: SinkRig) -> None:
        """In an envelope without a place for deletions, a deleted row is a key with the value None, and it arrives.

        Compaction and consumers delete rows because of it. None is not an empty value: look for `if value`, and for a
        value that replaces None.
        """
        # Wrong options must fail here, not make the promise inapplicable.
        Parts(readable.feed()).open_encoder().check([])
        takes = readable.registration.envelopes
        for envelope in (name for name in _WITH_TOMBSTONES if takes is None or name in takes):
            readable.options |= {"envelope": envelope, "updated": False}
            with contextlib.suppress(ConfigError):
                Parts(readable.feed()).open_encoder().check([])
                break
        else:
            does_not_apply("sink and encoder, with these options, have no common envelope with tombstones")
        changes = [
            Change({"id": number, "note": "a"}, op=Op.DELETE if number % 2 else Op.INSERT) for number in range(6)
        ]
        _assert_unchanged(readable, rows(ORDERS, changes))

    def test_large_values_arrive_whole(self, readable: SinkRig, large_value_bytes: int) -> None:
        """A value of `large_value_bytes` arrives whole. Refuse what the destination cannot take; do not truncate it."""
        text = "".join(f"{number:07} " for number in range(large_value_bytes // 8))
        _assert_unchanged(readable, rows(ORDERS, [Change({"id": 1, "note": text}), Change({"id": 2, "note": "small"})]))


def _assert_unchanged(rig: SinkRig, batch: RowBatch) -> None:
    __tracebackhide__ = True
    if batch.schema != ORDERS:
        rig.start(batch.schema)
    rig.write(batch)
    rig.assert_arrived(batch, after="rows were emitted and flushed and must arrive unchanged")


class Resolved:
    """Promises of ResolvedSink: `emit_resolved`."""

    def test_a_resolved_mark_follows_its_rows(self, readable: SinkRig) -> None:
        """At every endpoint, each row with `updated` up to the mark comes before the mark.

        A consumer that reads up to the mark treats what it has as complete. Where the output is files, the mark's name
        must sort after the rows' names.
        """
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

    def test_a_resolved_mark_reaches_every_endpoint(self, fresh_readable: SinkRig) -> None:
        """Each partition of each topic gets the mark, also a partition without rows.

        A consumer waits for the mark of all its partitions, so one partition without the mark blocks it.
        """
        fresh_readable.start(ORDERS, USERS)
        with fresh_readable.reader() as reader:
            endpoints = set(reader.endpoints())
        named = {topic for topic, _ in endpoints}
        unnamed = set() if None in named else {fresh_readable.topic(schema) for schema in (ORDERS, USERS)} - named
        assert not unnamed, (
            "the reader must return the endpoints of every topic after prepare, before anything is written, but it"
            f" returns {endpoints or 'none'}"
        )
        fresh_readable.resolve(AT)
        found = {endpoint for endpoint, mark in fresh_readable.read().marks if mark == AT}
        assert not endpoints - found, (
            f"emit_resolved returned, but of {len(endpoints)} endpoints these have no mark: {endpoints - found}; the"
            f" reader found marks at {found or 'none'}"
        )

    def test_only_emit_resolved_writes_marks(self, readable: SinkRig) -> None:
        """`flush` writes no mark: another slice may still hold earlier rows."""
        readable.write(versions(range(6)))
        seen = readable.read()
        assert not seen.marks, f"emit_resolved was not called, but there are marks: {seen.marks}"
        assert not seen.unknown, f"only rows were emitted, but this arrived: {seen.unknown[0].text}"

    def test_a_resolved_mark_can_be_repeated(self, readable: SinkRig) -> None:
        """`emit_resolved` accepts the same timestamp again, in the same attempt and in a later one."""
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
        exact = [Timestamp(1_700_000_000_123_456_789), Timestamp(1_700_000_000_123_456_789, 7)]
        for mark in exact:
            readable.resolve(mark)
        seen = readable.read()
        found = sorted({mark for _, mark in seen.marks})
        unknown = f", and also {seen.unknown[0].text}" if seen.unknown else ""
        assert found == exact, f"the marks {exact} were emitted, but these arrived: {found}{unknown}"

    def test_a_resolved_mark_is_durable(self, readable: SinkRig) -> None:
        """A process dies the moment `emit_resolved` returns, and the mark is there. Nothing would repeat it."""
        readable.expect_mark(AT)
        readable.crash_after(AT)
        found = {mark for _, mark in readable.read().marks}
        assert found == {AT}, f"emit_resolved({AT}) returned and the process died, but the marks are {found or 'none'}"
