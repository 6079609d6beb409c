"""Promises about messages: one for each row, in order, always with the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from cdc_conformance.encoders.form import MESSAGES, Form, open_encoder
from cdc_conformance.encoders.rig import EncoderRig, body_of, pairs_of
from cdc_conformance.processes import Peer
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, sample, table
from cdc_core import Encoder, Op, RowBatch, TableSchema, Timestamp
from cdc_core.config.resolved import ResolvedChangefeed

PEER = Peer(
    f"import {__name__} as here; here.set_clock_ahead()",
    PYTHONHASHSEED="4711",
    TZ="Pacific/Chatham",
    LC_ALL="C",
    PYTHONUTF8="0",
)

_MANY = 1500
_ORDERS = table("orders", {"id": INT8, "note": TEXT, "city": TEXT})


def pairs_of_other_process(feed: ResolvedChangefeed, rows: RowBatch, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of *rows* that the encoder of *feed* writes in another process."""
    return PEER.call(_pairs, feed, bytes(rows.to_ipc()), topic)


def _pairs(feed: ResolvedChangefeed, rows: bytes, topic: str) -> list[tuple[bytes, bytes | None]]:
    return pairs_of(open_encoder(feed).encode(RowBatch.from_ipc(rows), topic=topic))


def set_clock_ahead() -> None:
    """Make it the next day in this process, before plugins are imported."""
    time.time = partial(_later, time.time)


def _later(now: Callable[[], float]) -> float:
    return now() + 86_400


class Messages:
    """These promises need no decoder."""

    def test_every_registered_envelope_can_be_written(self, rig: EncoderRig, topic: str) -> None:
        """With every envelope and output of its registration, the encoder opens, passes `check` and encodes a table.

        Users may choose everything that the registration lists. A sink of files accepts the envelopes `wrapped` and
        `bare`, and always requires key_in_value.
        """
        batch = history(_ORDERS)
        for output, envelope in rig.promised():
            form = rig.form(output, envelope)
            encoder = rig.encoder(form)
            encoder.check([(_ORDERS, topic)])
            assert len(written(encoder, batch, topic, form)), f"{form}: the encoder wrote nothing for {len(batch)} rows"

    @applies_if(MESSAGES)
    def test_there_is_one_message_for_each_row(self, rig: EncoderRig, topic: str) -> None:
        """`encode` returns one key and one value for each row, binary or large_binary. No key is null."""
        batch = rig.given(history(_ORDERS))
        for form in rig.some(output="messages"):
            found = rig.encoder(form).encode(batch, topic=topic)
            sizes = {"key": len(found.key), "value": len(found.value), "updated": len(found.updated)}
            assert set(sizes.values()) == {len(batch)}, f"{form}: the sizes for {len(batch)} rows are {sizes}"
            for name in ("key", "value"):
                type_ = getattr(found, name).type
                assert type_ in (pa.binary(), pa.large_binary()), f"{form}: {name} is {type_}, not binary"
            assert found.key.null_count == 0, f"{form}: {found.key.null_count} messages have no key"

    @applies_if(MESSAGES)
    def test_messages_have_the_times_and_topic_of_their_rows(self, rig: EncoderRig, topic: str) -> None:
        """A MessageBatch has the column `updated` of the rows, and the topic that `encode` got. Sinks use both."""
        batch = rig.given(history(_ORDERS)).slice(1)
        for form in rig.some(output="messages"):
            found = rig.encoder(form).encode(batch, topic=topic)
            assert found.updated.equals(batch.column("updated")), f"{form}: 'updated' differs from that of the rows"
            assert found.topic == topic, f"{form}: the topic is {found.topic!r}, not {topic!r}"

    @applies_if(MESSAGES)
    def test_messages_have_the_order_of_their_rows(self, rig: EncoderRig, topic: str) -> None:
        """Message n is that of row n, so reversing the rows reverses the messages.

        Consumers see the changes of a key in this order. Look for grouping by operation or key.
        """
        changes = _changes()
        forwards, backwards = rows(_ORDERS, changes), rows(_ORDERS, changes[::-1])
        for form in rig.some(output="messages"):
            encoder = rig.encoder(form)
            first, second = (pairs_of(encoder.encode(batch, topic=topic)) for batch in (forwards, backwards))
            assert second == first[::-1], f"{form}: the messages of reversed rows are not the reversed messages"

    @applies_if(MESSAGES)
    def test_an_empty_batch_gives_no_messages(self, rig: EncoderRig, topic: str) -> None:
        """A batch without rows gives no messages and no error, even when it is the first or a slice of another."""
        whole = history(_ORDERS)
        for form in rig.full_forms(output="messages"):
            for empty in (rows(_ORDERS, [], before=True, mvcc=True), whole.slice(2, 0)):
                found = rig.encoder(form).encode(empty, topic=topic)
                assert (len(found.key), len(found.value)) == (0, 0), f"{form}: no rows gave {len(found)} messages"

    @applies_if(MESSAGES)
    def test_slices_of_a_batch_give_the_same_messages(self, rig: EncoderRig, topic: str) -> None:
        """The slices of a batch give the messages of the batch, however it is divided and however large it is.

        A slice shares the buffers of its batch. Look for code that reads Arrow buffers without their offset, or the
        child of a struct without the offset of the struct.
        """
        for form in rig.full_forms(output="messages"):
            whole = rig.given(history(rig.every_kind(form, topic)))
            encoder = rig.encoder(form)
            wanted = pairs_of(encoder.encode(whole, topic=topic))
            slices = {(start, n) for start in range(len(whole)) for n in (1, 2, len(whole) - start)}
            for start, length in sorted(slices):
                part = whole.slice(start, length)
                found = pairs_of(encoder.encode(part, topic=topic))
                assert found == wanted[start : start + length], (
                    f"{form}: rows {start} to {start + length - 1} give different messages as a slice than in the batch"
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

        Failed steps are repeated, and consumers recognize a repeated row by its bytes. Look for a clock, a random
        number or a counter.
        """
        for form in rig.full_forms():
            batch = history(rig.every_kind(form, topic))
            encoder, other = rig.encoder(form), rig.encoder(form)
            first = written(encoder, batch, topic, form)
            for what, again in (("the same encoder", encoder), ("a second encoder", other)):
                found = written(again, RowBatch.from_ipc(batch.to_ipc()), topic, form)
                assert found == first, f"{form}: {what} gave different bytes for the same rows"

    @applies_if(MESSAGES)
    def test_other_processes_write_the_same_bytes(self, rig: EncoderRig, topic: str) -> None:
        """A process with another hash seed, date, time zone and locale writes the same messages.

        Another worker may encode rows again. Look for the order of a set, `hash()`, the current time and local time.
        """
        for form in rig.full_forms(output="messages"):
            batch = rig.given(history(rig.every_kind(form, topic)))
            here = pairs_of(rig.encoder(form).encode(batch, topic=topic))
            there = pairs_of_other_process(rig.feed(form), batch, topic)
            assert there == here, f"{form}: another process writes different messages for the same rows"

    @applies_if(MESSAGES)
    def test_messages_do_not_depend_on_earlier_batches(self, rig: EncoderRig, topic: str) -> None:
        """The messages of a batch do not depend on the rows, tables and topics that the encoder encoded before.

        Workers get different batches in different orders. Look for state that is stored only by the name of a table, or
        that grows with each batch.
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
                        f"{form}: table {batches[index].schema.name.full} gives different messages after different"
                        f" batches"
                    )

    def test_rows_are_not_modified(self, rig: EncoderRig, topic: str) -> None:
        """`encode` and a file's `write` do not modify the batch. A retry uses it again."""
        for form in rig.full_forms():
            batch = history(rig.every_kind(form, topic))
            before = bytes(batch.to_ipc())
            written(rig.encoder(form), batch, topic, form)
            assert bytes(batch.to_ipc()) == before, f"{form}: encoding modified the batch"

    @applies_if(MESSAGES)
    def test_messages_are_not_modified_later(self, rig: EncoderRig, topic: str) -> None:
        """Messages that `encode` returned do not change with later batches. Sinks have many batches in flight.

        Look for a buffer that is reused.
        """
        for form in rig.some(output="messages"):
            encoder = rig.encoder(form)
            first = encoder.encode(history(_ORDERS), topic=topic)
            before = pairs_of(first)
            encoder.encode(history(_ORDERS, first=500), topic=topic)
            assert pairs_of(first) == before, f"{form}: encoding the next batch modified earlier messages"


def history(schema: TableSchema, *, first: int = 0) -> RowBatch:
    """Return changes of several keys with every operation, with rows before the change and `mvcc` times."""
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
    """Return the encoded *batch*, for comparisons."""
    if form.output == "files":
        return body_of(encoder, [batch], topic)
    return pairs_of(encoder.encode(batch, topic=topic))
