"""Promises about envelopes: metadata, deleted rows and resolved marks; and about formats that are for scans only."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_conformance.encoders.comparison import differences, expected_rows
from cdc_conformance.encoders.form import CHANGES, DECODER, MESSAGES, SCANS_ONLY, Form
from cdc_conformance.encoders.messages import written
from cdc_conformance.encoders.rig import EncoderRig, pairs_of
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ColumnType, DeleteForm, EncodeError, Kind, Op, RowBatch, TerminalError, Timestamp

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_NUMERIC = ColumnType(kind=Kind.DECIMAL, source="numeric")
_TIMES = [
    Timestamp(1),
    Timestamp(1, 1),
    Timestamp(1_700_000_000_123_456_789),
    Timestamp(1_700_000_000_123_456_789, 7),
    Timestamp(2**63 - 1, 2**31 - 1),
]
"""In ascending order, with logical counters and nanoseconds."""
_KEY = 47_110_815
_MARKS = [Timestamp(0, 1), Timestamp(1_700_000_000_123_456_789, 7), Timestamp(2**63 - 1, 2**31 - 1)]
_MARK = Timestamp(1_700_000_000_000_000_000, 1)


@applies_if(DECODER)
class Envelopes:
    """An encoder may refuse an option in an envelope. It must write every option that it accepts."""

    @applies_if(CHANGES)
    def test_a_delete_names_the_deleted_row(self, rig: EncoderRig, topic: str) -> None:
        """A deleted row has its key and no row after the change.

        In `row` and `key_only`, its message is a tombstone: it has no value. In `wrapped`, it has a value, which files
        need. In `bare`, the value may be the key and nulls. Look at batches that contain only deletes, and at rows
        after a delete.
        """
        orders = [Change({"id": n, "note": "x"}, op=Op.DELETE if n % 3 else Op.INSERT) for n in range(7)]
        for changes in (orders, orders[1:3]):
            batch = rows(_ORDERS, changes)
            for form in rig.some():
                _compare(rig, form, batch, topic)
                if form.output == "messages":
                    _check_tombstones(rig, form, batch, topic)

    @applies_if(CHANGES)
    def test_values_under_a_delete_are_ignored(self, rig: EncoderRig, topic: str) -> None:
        """Arrow may contain any bytes where `after` is null. They are not written, and cause no error."""
        schema = table("orders", {"id": INT8, "price": _NUMERIC})
        if any(rig.refusal(form, schema, topic) for form in rig.forms(rows=True)):
            schema = table("orders", {"id": INT8, "price": TEXT})
        batch = rows(schema, [Change({"id": n, "price": "1" if n != 1 else "invalid"}) for n in range(3)])
        images = batch.column("after")
        fields = [images.field(0), images.field(1)]
        after = RowBatch.struct(schema.after_type, fields, mask=pa.array([False, True, False]))
        columns = {name: batch.column(name) for name in batch.batch.schema.names} | {"after": after}
        hidden = RowBatch.of(schema, **{**columns, "op": pa.array([Op.INSERT, Op.DELETE, Op.INSERT], pa.uint8())})
        for form in rig.some(rows=True):
            _compare(rig, form, hidden, topic)

    def test_diff_adds_the_row_before(self, rig: EncoderRig, topic: str) -> None:
        """With `diff`, each message has the row before the change, null where there was none."""
        changes = [
            Change({"id": 1, "note": "new"}, op=Op.INSERT),
            Change({"id": 1, "note": "newer"}, op=Op.UPDATE, before={"id": 1, "note": "new"}),
            Change({"id": 1, "note": None}, op=Op.UPDATE, before={"id": 1, "note": "newer"}),
            Change({"id": 1}, op=Op.DELETE, before={"id": 1, "note": None}),
            Change({"id": 2, "note": "scanned"}, op=Op.SCAN),
        ]
        _compare_all(rig, ("diff",), rows(_ORDERS, changes, before=True), topic)

    def test_updated_is_exact(self, rig: EncoderRig, topic: str) -> None:
        """With `updated`, each message has the row's commit time with nanoseconds and logical counter.

        Consumers compare it with resolved marks. A row whose time was truncated seems to arrive too late.
        """
        changes = [Change({"id": n, "note": "x"}, updated=time) for n, time in enumerate(_TIMES)]
        for batch in (rows(_ORDERS, changes), rows(_ORDERS, changes).slice(3, 1), rows(_ORDERS, changes[:1] * 3)):
            _compare_all(rig, ("updated",), batch, topic)

    def test_mvcc_timestamps_are_exact(self, rig: EncoderRig, topic: str) -> None:
        """With `mvcc_timestamp`, each message has the row's own commit time. In a scan it differs from `updated`."""
        changes = [Change({"id": n, "note": "x"}, op=Op.SCAN, mvcc=time) for n, time in enumerate(_TIMES)]
        _compare_all(rig, ("mvcc_timestamp",), rows(_ORDERS, changes, mvcc=True), topic)

    def test_an_unknown_mvcc_timestamp_equals_updated(self, rig: EncoderRig, topic: str) -> None:
        """When the column `mvcc` is null or missing, because the source does not know the time, it is `updated`."""
        changes = [Change({"id": n, "note": "x"}, updated=time) for n, time in enumerate(_TIMES)]
        known = rows(_ORDERS, changes, mvcc=True)
        columns = {name: known.column(name) for name in known.batch.schema.names}
        some = pa.array([n % 2 == 0 for n in range(len(changes))])
        columns["mvcc"] = pc.if_else(some, columns["mvcc"], pa.scalar(None, columns["mvcc"].type))
        for batch in (rows(_ORDERS, changes), RowBatch.of(_ORDERS, **columns)):
            _compare_all(rig, ("mvcc_timestamp",), batch, topic)

    def test_the_key_in_the_value_is_the_key(self, rig: EncoderRig, topic: str) -> None:
        """With `key_in_value`, each value has the whole key in key order, also for a delete."""
        schema = table("orders", {"id": INT8, "note": TEXT, "city": TEXT}, primary_key=("city", "id"))
        changes = [
            Change({"id": n, "city": city, "note": "x"}, op=op)
            for n, city, op in ((1, 'é, "b"', Op.INSERT), (2, "", Op.DELETE), (3, "c", Op.UPDATE))
        ]
        _compare_all(rig, ("key_in_value",), rows(schema, changes), topic)

    def test_the_topic_in_the_value_is_the_topic(self, rig: EncoderRig, topic: str) -> None:
        """With `topic_in_value`, each value has exactly the topic that `encode` or `open_body` got."""
        batch = rows(_ORDERS, [Change({"id": 1, "note": "x"}), Change({"id": 1}, op=Op.DELETE)])
        for name in (topic, f"{topic}.shop.public.größe", f'{topic}"\\'):
            _compare_all(rig, ("topic_in_value",), batch, name)


def _compare_all(rig: EncoderRig, flags: tuple[str, ...], batch: RowBatch, topic: str) -> None:
    for form in rig.some(*flags):
        _compare(rig, form, batch, topic)


def _compare(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    difference = differences(batch.schema, form, expected_rows(batch, topic, form), rig.read(form, [batch], topic))
    assert not difference, difference


def _check_tombstones(rig: EncoderRig, form: Form, batch: RowBatch, topic: str) -> None:
    delete = form.envelope.delete
    if delete is DeleteForm.KEY_AND_NULLS:
        return
    values = [value for _, value in pairs_of(rig.encoder(form).encode(batch, topic=topic))]
    for index, (op, value) in enumerate(zip(batch.column("op").to_pylist(), values, strict=True)):
        wanted = op == Op.DELETE and delete is DeleteForm.TOMBSTONE
        assert (value is None) == wanted, (
            f"{form}: row {index}, {Op(op).name}, {'must be' if wanted else 'must not be'} a tombstone, a message "
            f"without a value; it is {value!r}"
        )


@applies_if(CHANGES)
class Resolved:
    """A resolved mark is a message in every partition, or a file of its own."""

    @applies_if(DECODER)
    def test_a_resolved_mark_has_the_exact_timestamp(self, rig: EncoderRig, topic: str) -> None:
        """A mark is read with its exact timestamp, including nanoseconds and logical counter.

        A later timestamp would claim delivery of rows that have not arrived yet.
        """
        for form in rig.some():
            for time in _MARKS:
                found = rig.decoder(form).resolved(rig.encoder(form).encode_resolved(topic, time))
                assert found == time, f"{form}: the mark of {time} is read as {found}"

    @applies_if(DECODER)
    @applies_if(MESSAGES)
    def test_a_resolved_mark_differs_from_every_row(self, rig: EncoderRig, topic: str) -> None:
        """No row is read as a mark: no delete, no tombstone, and no row with a column `resolved`."""
        text = str(_MARK)
        names = ["resolved", "after", "updated", "value", "timestamp"]
        for form in rig.full_forms(output="messages"):
            for columns in ({"resolved": TEXT}, {"id": INT8, **dict.fromkeys(names, TEXT)}):
                schema = table("marks", columns, primary_key=list(columns)[:1])
                if rig.refusal(form, schema, topic) is not None:
                    continue
                values = {name: 1 if name == "id" else text for name in columns}
                changes = [Change(values, op=op, before=values) for op in (Op.INSERT, Op.DELETE, Op.UPDATE)]
                batch = rows(schema, changes, before=True)
                for key, value in pairs_of(rig.encoder(form).encode(batch, topic=topic)):
                    found = rig.decoder(form).resolved(value)
                    assert found is None, f"{form}: the row {key!r}, {value!r} is read as the mark {found}"

    def test_the_same_resolved_mark_has_the_same_bytes(self, rig: EncoderRig, topic: str) -> None:
        """A mark always has the same bytes, before and after rows of the topic, because it may be sent twice.

        With a schema registry, the schema id of an encoder that has encoded no rows may differ.
        """
        for form in rig.some():
            batch = rows(table("orders", {"id": INT8}), [Change({"id": 1})])
            if form.output == "messages":
                rig.encoder(form).encode(batch, topic=topic)
            encoder = rig.encoder(form)
            first = encoder.encode_resolved(topic, _MARK)
            assert encoder.encode_resolved(topic, _MARK) == first, f"{form}: the second mark has other bytes"
            if form.output == "messages":
                encoder.encode(batch, topic=topic)
            assert encoder.encode_resolved(topic, _MARK) == first, f"{form}: the mark has other bytes after a row"
            assert rig.encoder(form).encode_resolved(topic, _MARK) == first, (
                f"{form}: a second encoder writes different bytes for the same mark"
            )


@applies_if(SCANS_ONLY)
class Scans:
    """Encoders that are registered with `scans_only`."""

    def test_a_scans_only_format_refuses_deletes_and_marks(self, rig: EncoderRig, topic: str) -> None:
        """A deleted row raises EncodeError, with table and key. A resolved mark raises TerminalError.

        The engine emits no marks for such a format. Readers of a file must not read a deleted row as an existing one.
        """
        batch = rows(_ORDERS, [Change({"id": 1}, op=Op.SCAN), Change({"id": _KEY}, op=Op.DELETE)])
        for form in rig.some():
            encoder = rig.unguarded(form)
            with pytest.raises(EncodeError) as refused:
                written(encoder, batch, topic, form)
            for what, word in (("table", str(_ORDERS.name)), ("key", str(_KEY))):
                assert word in str(refused.value), f"{form}: the error lacks the {what} '{word}': {refused.value}"
            with pytest.raises(TerminalError):
                encoder.encode_resolved(topic, Timestamp(1))
