"""Promises about envelopes: what stands beside the row, and what is said of a row that is gone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.encoders.comparing import differences, rows_of
from cdc_conformance.encoders.rig import EncoderRig, Form, pairs_of
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ColumnType, Kind, Op, RowBatch, Timestamp

__all__ = ["Envelopes"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_NUMERIC = ColumnType(kind=Kind.DECIMAL, source="numeric")
_TIMES = [
    Timestamp(1),
    Timestamp(1, 1),
    Timestamp(1_700_000_000_123_456_789),
    Timestamp(1_700_000_000_123_456_789, 7),
    Timestamp(2**63 - 1, 2**31 - 1),
]
"""In rising order, with logical counters, and to the last nanosecond."""


class Envelopes:
    """Which options an envelope has a place for is the encoder's affair: what it accepts, it must write."""

    def test_a_delete_says_which_row_is_gone(self, rig: EncoderRig, topic: str) -> None:
        """A deleted row has its key and no row after the change, whatever stood in the row.

        In `row` and `key_only` its message is a tombstone, without a value; in `wrapped` it has a value, which a file
        needs. In `bare` it may be the key with nulls. When this fails, look at batches with deletes only, and at rows
        that follow a delete.
        """
        rig.require_changes()
        orders = [Change({"id": n, "note": "x"}, op=Op.DELETE if n % 3 else Op.INSERT) for n in range(7)]
        for changes in (orders, orders[1:3]):
            batch = rows(_ORDERS, changes)
            for form in rig.some():
                _compare(rig, form, batch, topic)
                if form.output == "messages":
                    _check_tombstones(rig, form, batch, topic)

    def test_what_stands_under_a_delete_is_ignored(self, rig: EncoderRig, topic: str) -> None:
        """Arrow may hold any bytes where `after` is null; none of them is written, or makes a row fail."""
        rig.require_changes()
        schema = table("orders", {"id": INT8, "price": _NUMERIC})
        if any(rig.refusal(form, schema, topic) for form in rig.forms(rows=True)):
            schema = table("orders", {"id": INT8, "price": TEXT})
        batch = rows(schema, [Change({"id": n, "price": "1" if n != 1 else "rubbish"}) for n in range(3)])
        kept = batch.column("after")
        after = RowBatch.struct(schema.after_type, [kept.field(0), kept.field(1)], mask=pa.array([False, True, False]))
        columns = {name: batch.column(name) for name in batch.batch.schema.names} | {"after": after}
        hidden = RowBatch.of(schema, **{**columns, "op": pa.array([Op.INSERT, Op.DELETE, Op.INSERT], pa.uint8())})
        for form in rig.some(rows=True):
            _compare(rig, form, hidden, topic)

    def test_diff_carries_the_row_before(self, rig: EncoderRig, topic: str) -> None:
        """With `diff` each message has the row as it was, null where there was none; never the row after."""
        changes = [
            Change({"id": 1, "note": "new"}, op=Op.INSERT),
            Change({"id": 1, "note": "newer"}, op=Op.UPDATE, before={"id": 1, "note": "new"}),
            Change({"id": 1, "note": None}, op=Op.UPDATE, before={"id": 1, "note": "newer"}),
            Change({"id": 1}, op=Op.DELETE, before={"id": 1, "note": None}),
            Change({"id": 2, "note": "scanned"}, op=Op.SCAN),
        ]
        _compare_all(rig, ("diff",), rows(_ORDERS, changes, before=True), topic)

    def test_updated_is_exact(self, rig: EncoderRig, topic: str) -> None:
        """With `updated` each message has the row's commit time, nanoseconds and logical counter included.

        Consumers compare these with resolved marks: a microsecond less and a row seems to come too late.
        """
        changes = [Change({"id": n, "note": "x"}, updated=time) for n, time in enumerate(_TIMES)]
        for batch in (rows(_ORDERS, changes), rows(_ORDERS, changes).slice(3, 1), rows(_ORDERS, changes[:1] * 3)):
            _compare_all(rig, ("updated",), batch, topic)

    def test_mvcc_timestamps_are_exact(self, rig: EncoderRig, topic: str) -> None:
        """With `mvcc_timestamp` each message has the row version's own commit time; in a scan that is not `updated`."""
        changes = [Change({"id": n, "note": "x"}, op=Op.SCAN, mvcc=time) for n, time in enumerate(_TIMES)]
        _compare_all(rig, ("mvcc_timestamp",), rows(_ORDERS, changes, mvcc=True), topic)

    def test_an_unknown_mvcc_timestamp_is_that_of_updated(self, rig: EncoderRig, topic: str) -> None:
        """Where the source does not know a row's own time, the column `mvcc` being null or missing, it is `updated`."""
        changes = [Change({"id": n, "note": "x"}, updated=time) for n, time in enumerate(_TIMES)]
        known = rows(_ORDERS, changes, mvcc=True)
        columns = {name: known.column(name) for name in known.batch.schema.names}
        some = pa.array([n % 2 == 0 for n in range(len(changes))])
        columns["mvcc"] = pc.if_else(some, columns["mvcc"], pa.scalar(None, columns["mvcc"].type))
        for batch in (rows(_ORDERS, changes), RowBatch.of(_ORDERS, **columns)):
            _compare_all(rig, ("mvcc_timestamp",), batch, topic)

    def test_the_key_in_the_value_is_the_key(self, rig: EncoderRig, topic: str) -> None:
        """With `key_in_value` each value has the whole key in key order, a delete's too."""
        schema = table("orders", {"id": INT8, "note": TEXT, "city": TEXT}, primary_key=("city", "id"))
        changes = [
            Change({"id": n, "city": city, "note": "x"}, op=op)
            for n, city, op in ((1, 'é, "b"', Op.INSERT), (2, "", Op.DELETE), (3, "c", Op.UPDATE))
        ]
        _compare_all(rig, ("key_in_value",), rows(schema, changes), topic)

    def test_the_topic_in_the_value_is_the_topic(self, rig: EncoderRig, topic: str) -> None:
        """With `topic_in_value` each value has the topic that `encode` or `open_body` was given, letter by letter."""
        batch = rows(_ORDERS, [Change({"id": 1, "note": "x"}), Change({"id": 1}, op=Op.DELETE)])
        for name in (topic, f"{topic}.shop.public.größe", f'{topic}"\\'):
            _compare_all(rig, ("topic_in_value",), batch, name)


def _compare_all(rig: EncoderRig, flags: tuple[str, ...], batch: RowBatch, topic: str) -> None:
    for form in rig.some(*flags):
        _compare(rig, form, batch, topic)


def _compare(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    said = differences(batch.schema, form, rows_of(batch, topic, form), rig.read(form, [batch], topic))
    assert not said, said


def _check_tombstones(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    values = [value for _, value in pairs_of(rig.encoder(form).encode(batch, topic=topic))]
    for index, (op, value) in enumerate(zip(batch.column("op").to_pylist(), values, strict=True)):
        wanted = op == Op.DELETE and form.name in ("row", "key_only")
        if form.name != "bare":
            assert (value is None) == wanted, (
                f"{form}: row {index}, {Op(op).name}, {'must be' if wanted else 'must not be'} a tombstone, a message "
                f"without a value; it is {value!r}"
            )
