"""Promises about messages as such: one for each row, in order, always the same."""

from __future__ import annotations

import pyarrow as pa

from cdc_conformance.encoders.elsewhere import pairs_elsewhere
from cdc_conformance.encoders.rig import EncoderRig, Form, body_of, pairs_of
from cdc_conformance.rows import INT8, TEXT, Change, rows, sample, table
from cdc_core import Encoder, Op, RowBatch, TableSchema, Timestamp

__all__ = ["Messages", "history", "written"]

_MANY = 1500
_ORDERS = table("orders", {"id": INT8, "note": TEXT, "city": TEXT})


class Messages:
    """Seen in the bytes alone, without a decoder."""

    def test_every_envelope_that_is_registered_can_be_written(self, rig: EncoderRig, topic: str) -> None:
        """Each of the registration's envelopes and outputs opens, passes `check` and encodes a plain table.

        What a registration lists is offered to users before anything of the encoder is loaded. A sink of files takes
        the envelopes `wrapped` and `bare`, and always asks for key_in_value.
        """
        batch = history(_ORDERS)
        for output, envelope in rig.promised():
            form = rig.form(output, envelope)
            encoder = rig.encoder(form)
            encoder.check([(_ORDERS, topic)])
            assert len(written(encoder, batch, topic, form)), f"{form}: {len(batch)} rows gave nothing"

    def test_there_is_one_message_for_each_row(self, rig: EncoderRig, topic: str) -> None:
        """`encode` returns as many keys and values as there are rows, binary or large_binary, no key null."""
        batch = rig.given(history(_ORDERS))
        for form in rig.some(output="messages"):
            found = rig.encoder(form).encode(batch, topic=topic)
            sizes = {"key": len(found.key), "value": len(found.value), "updated": len(found.updated)}
            assert set(sizes.values()) == {len(batch)}, f"{form}: {len(batch)} rows gave {sizes}"
            for name in ("key", "value"):
                type_ = getattr(found, name).type
                assert type_ in (pa.binary(), pa.large_binary()), f"{form}: {name} is {type_}, not binary"
            assert found.key.null_count == 0, f"{form}: {found.key.null_count} messages have no key"

    def test_messages_carry_the_times_of_their_rows(self, rig: EncoderRig, topic: str) -> None:
        """A MessageBatch has the rows' own column `updated`, and the topic that was given: sinks order and route by it.

        What stands in the messages is another promise's affair.
        """
        batch = rig.given(history(_ORDERS)).slice(1)
        for form in rig.some(output="messages"):
            found = rig.encoder(form).encode(batch, topic=topic)
            assert found.updated.equals(batch.column("updated")), f"{form}: 'updated' is not the rows' own"
            assert found.topic == topic, f"{form}: the topic is {found.topic!r}, not {topic!r}"

    def test_messages_stand_in_the_order_of_their_rows(self, rig: EncoderRig, topic: str) -> None:
        """Message n is that of row n: reversing the rows reverses the messages.

        A consumer sees the changes of a key in this order. When this fails, look for grouping by operation or key.
        """
        changes = _changes()
        forwards, backwards = rows(_ORDERS, changes), rows(_ORDERS, changes[::-1])
        for form in rig.some(output="messages"):
            encoder = rig.encoder(form)
            first, second = (pairs_of(encoder.encode(batch, topic=topic)) for batch in (forwards, backwards))
            assert second == first[::-1], f"{form}: the messages of reversed rows are not the reversed messages"

    def test_an_empty_batch_gives_no_messages(self, rig: EncoderRig, topic: str) -> None:
        """A batch without rows gives no messages and no error, also when it is the first or a slice of another."""
        whole = history(_ORDERS)
        for form in rig.full_forms(output="messages"):
            for empty in (rows(_ORDERS, [], before=True, mvcc=True), whole.slice(2, 0)):
                found = rig.encoder(form).encode(empty, topic=topic)
                assert (len(found.key), len(found.value)) == (0, 0), f"{form}: no rows gave {len(found)} messages"

    def test_a_part_of_a_batch_gives_its_part_of_the_messages(self, rig: EncoderRig, topic: str) -> None:
        """However a batch is cut, the pieces give the messages of the whole, also of one with very many rows.

        A slice shares its buffers with the batch and begins in their midst. When this fails, look for code that reads
        Arrow buffers without their offset, or for a child of a struct taken without the struct's own.
        """
        for form in rig.full_forms(output="messages"):
            whole = rig.given(history(rig.every_kind(form, topic)))
            encoder = rig.encoder(form)
            wanted = pairs_of(encoder.encode(whole, topic=topic))
            for start, length in ((start, end - start) for end in range(1, len(whole) + 1) for start in range(end)):
                part = whole.slice(start, length)
                found = pairs_of(encoder.encode(part, topic=topic))
                assert found == wanted[start : start + length], (
                    f"{form}: rows {start} to {start + length - 1} give other messages as a slice than in their batch"
                )
        for form in rig.full_forms(output="messages")[:1]:
            encoder = rig.encoder(form)
            large = rows(_ORDERS, [Change({"id": n, "note": f"{n}"}) for n in range(_MANY)])
            parts = [pairs_of(encoder.encode(large.slice(n, 50), topic=topic)) for n in range(0, _MANY, 50)]
            found = pairs_of(encoder.encode(large, topic=topic))
            assert found == [pair for part in parts for pair in part], (
                f"{form}: {_MANY} rows in one batch give {len(found)} messages, which are not those of its parts"
            )

    def test_the_same_rows_give_the_same_bytes(self, rig: EncoderRig, topic: str) -> None:
        """Encoding again, with the same encoder or a new one, gives the same messages and files.

        A step that failed is repeated, and consumers know a row again by its bytes. When this fails, look for a clock,
        a random number, or a counter.
        """
        for form in rig.full_forms():
            batch = history(rig.every_kind(form, topic))
            encoder, other = rig.encoder(form), rig.encoder(form)
            first = written(encoder, batch, topic, form)
            for what, again in (("the same encoder", encoder), ("a second encoder", other)):
                found = written(again, RowBatch.from_ipc(batch.to_ipc()), topic, form)
                assert found == first, f"{form}: {what} gave other bytes for the same rows"

    def test_other_processes_write_the_same_bytes(self, rig: EncoderRig, topic: str) -> None:
        """A process with other hashes, on another day, in another time zone and locale, makes the same messages.

        Rows that are written again are written by another worker. When this fails, look for the order of a set,
        `hash()`, for the present time and for local time.
        """
        for form in rig.full_forms(output="messages"):
            batch = rig.given(history(rig.every_kind(form, topic)))
            here = pairs_of(rig.encoder(form).encode(batch, topic=topic))
            there = pairs_elsewhere(rig.job(form), batch, topic)
            assert there == here, f"{form}: another process makes other messages of the same rows"

    def test_earlier_batches_leave_no_trace(self, rig: EncoderRig, topic: str) -> None:
        """The messages of a batch do not depend on what the encoder saw before: other rows, tables or topics.

        Each worker sees other batches in another order. When this fails, look for state that is kept by the name of a
        table alone, or that grows from batch to batch.
        """
        batches = [
            history(_ORDERS),
            history(table("orders", {"note": INT8, "id": TEXT}, schema="archive")),
            history(table("orders", {"id": INT8, "other": TEXT}, database="second")),
            history(_ORDERS, first=100),
        ]
        for form in rig.full_forms(output="messages"):
            alone = [pairs_of(rig.encoder(form).encode(each, topic=f"{topic}_{n}")) for n, each in enumerate(batches)]
            for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
                encoder = rig.encoder(form)
                for index in order:
                    found = pairs_of(encoder.encode(batches[index], topic=f"{topic}_{index}"))
                    assert found == alone[index], (
                        f"{form}: after other batches, table {batches[index].schema.name.full} gives other messages"
                    )

    def test_the_rows_stay_as_they_are(self, rig: EncoderRig, topic: str) -> None:
        """`encode` and a file's `write` change nothing in the batch: several sinks and a retry see it too."""
        for form in rig.full_forms():
            batch = history(rig.every_kind(form, topic))
            before = bytes(batch.to_ipc())
            written(rig.encoder(form), batch, topic, form)
            assert bytes(batch.to_ipc()) == before, f"{form}: the batch is not what it was before encoding"

    def test_messages_stay_as_they_are(self, rig: EncoderRig, topic: str) -> None:
        """What `encode` returned does not change when the encoder goes on: a sink keeps many batches in flight.

        When this fails, look for a buffer that is used again.
        """
        for form in rig.some(output="messages"):
            encoder = rig.encoder(form)
            first = encoder.encode(history(_ORDERS), topic=topic)
            before = pairs_of(first)
            encoder.encode(history(_ORDERS, first=500), topic=topic)
            assert pairs_of(first) == before, f"{form}: the next batch changed messages that were returned before"


def history(schema: TableSchema, *, first: int = 0) -> RowBatch:
    """Return changes of every operation of several keys, with images of rows before and times of their own."""
    numbers = range(first, first + 6)
    values = [{column.name: sample(column.type, number) for column in schema.columns} for number in numbers]
    ops = [Op.INSERT, Op.UPDATE, Op.DELETE, Op.SCAN, Op.DELETE, Op.UPDATE]
    changes = [
        Change(
            value,
            op=op,
            before=None if op in (Op.INSERT, Op.SCAN) else {**value},
            updated=Timestamp(1_700_000_000_000_000_000 + number // 2, number % 2),
            mvcc=Timestamp(1_600_000_000_000_000_000 + number, 3),
        )
        for number, value, op in zip(numbers, values, ops, strict=True)
    ]
    return rows(schema, changes, before=True, mvcc=True)


def _changes() -> list[Change]:
    ops = (Op.INSERT, Op.DELETE, Op.SCAN, Op.UPDATE, Op.DELETE, Op.INSERT)
    return [
        Change({"id": n % 3, "note": f"note {n}", "city": None}, op=op, updated=Timestamp(100))
        for n, op in enumerate(ops)
    ]


def written(encoder: Encoder, batch: RowBatch, topic: str, form: Form) -> bytes | list[tuple[bytes, bytes | None]]:
    """Return everything that comes of *batch*, for comparing."""
    if form.output == "files":
        return body_of(encoder, [batch], topic)
    return pairs_of(encoder.encode(batch, topic=topic))
