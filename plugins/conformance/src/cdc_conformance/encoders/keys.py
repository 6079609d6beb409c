"""Promises about keys, which determine the partition of a message and what a compacted topic keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc_conformance.encoders.comparison import key_difference
from cdc_conformance.encoders.form import DECODER, MESSAGES, REKEYS, Form
from cdc_conformance.encoders.rig import EncoderRig, pairs_of
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import ColumnType, EncodeError, Kind, Op, RowBatch, TableSchema, plain_value

_INT4 = ColumnType(kind=Kind.INT, source="integer", bits=32)
_CONFUSABLE = [
    *("", "a", "b", "ab", "a,b", 'a"', 'a", "b', "a\\", "[", "null", "1", "A", " a", "a ", "é", "e\u0301", "\x00"),
]


@applies_if(MESSAGES)
class Keys:
    """Only messages have keys. Files have them in their values."""

    def test_equal_keys_have_equal_bytes(self, rig: EncoderRig, topic: str) -> None:
        """All changes of a key have the same key bytes, in every operation and batch, and with any values.

        Otherwise, changes of a key go to different partitions and arrive in any order, and a delete removes nothing
        from a compacted topic. Look for values, times or null bits of the row that affect the key.
        """
        schema = table("orders", {"id": INT8, "note": TEXT, "city": TEXT}, primary_key=("city", "id"))
        key = {"city": "é", "id": 7}
        changes = [Change({**key, "note": str(n)}, op=op) for n, op in enumerate(Op)]
        other = Change({"city": "b", "id": 7, "note": None})
        for form in rig.some(output="messages"):
            encoder = rig.encoder(form)
            batches = [rows(schema, changes), rows(schema, [other, *changes[::-1]]).slice(1), rows(schema, changes[:1])]
            found = {key for batch in batches for key, _ in pairs_of(encoder.encode(batch, topic=topic))}
            found |= {key for key, _ in pairs_of(rig.encoder(form).encode(batches[2], topic=topic))}
            assert len(found) == 1, f"{form}: one key has {len(found)} different encodings: {sorted(found)[:4]}"

    def test_different_keys_have_different_bytes(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """Two keys never have the same bytes, for every kind of column and for several columns.

        Otherwise, one row replaces another in a compacted topic. Look for a separator that values may contain, and for
        values that are truncated or rounded.
        """
        for form in rig.some(output="messages")[:1]:
            for sample in samples:
                schema = table(f"by_{sample.name}", {"k": sample.type}, primary_key=("k",))
                if sample.topic != "nested" and rig.refusal(form, schema, f"{topic}_{sample.name}") is None:
                    values = _distinct([*sample.ordinary, *sample.odd])
                    _check_distinct(rig, form, schema, [{"k": value} for value in values], f"{topic}_{sample.name}")
            pairs = table("by_pairs", {"a": TEXT, "b": TEXT}, primary_key=("a", "b"))
            _check_distinct(rig, form, pairs, [{"a": a, "b": b} for a in _CONFUSABLE for b in _CONFUSABLE], topic)

    @applies_if(DECODER)
    def test_composite_keys_have_key_order(self, rig: EncoderRig, topic: str) -> None:
        """The columns of a key have the order of the primary key, not that of the table."""
        changes = [Change({"a": n, "b": f"b{n}", "c": n + 100}, op=op) for n, op in enumerate((Op.INSERT, Op.DELETE))]
        for primary_key in (("c", "a"), ("a", "c"), ("b", "c", "a")):
            schema = table("orders", {"a": INT8, "b": TEXT, "c": INT8}, primary_key=primary_key)
            batch = rig.given(rows(schema, changes))
            for form in rig.some(output="messages"):
                found = rig.decoded(form, schema, pairs_of(rig.encoder(form).encode(batch, topic=topic)))
                for row, one in enumerate(batch.column("key")):
                    difference = key_difference(schema, tuple(plain_value(one).values()), found[row].key)
                    assert not difference, f"{form}, primary key ({', '.join(primary_key)}): {difference}"

    @applies_if(DECODER)
    @applies_if(REKEYS)
    def test_the_column_that_key_column_names_is_the_key(self, rig: EncoderRig, topic: str) -> None:
        """With the option key_column, the key of messages is the value of that column, which may be null.

        Equal values have equal bytes, whatever the primary key is, and a null is encoded the same for deleted rows as
        for others. `key_in_value` still adds the primary key. Take the keys of messages from `keyed`, and everything
        else from the rows themselves.
        """
        schema = table("orders", {"id": INT8, "city": TEXT})
        cities = ["Rome", "Oslo", "Rome", None]
        changes = [Change({"id": n, "city": city}, op=Op.SCAN) for n, city in enumerate(cities)]
        batch = rig.given(rows(schema, [*changes, Change({"id": 4}, op=Op.DELETE)]))
        options = {"key_column": "city", "unordered": True}
        for form in rig.some("key_in_value", rows=True, output="messages"):
            pairs = pairs_of(rig.encoder(form, **options).encode(batch, topic=f"{topic}_keyed"))
            numbers: dict[bytes, int] = {}
            found = [numbers.setdefault(key, len(numbers)) for key, _ in pairs]
            assert found == [0, 1, 0, 2, 2][: len(batch)], f"{form}, key_column = city: the keys are {pairs}"
            decoder = rig.decoder(form, **options)
            keys = [decoder.message(schema, key, value).key_in_value for key, value in pairs]
            assert keys == [(n,) for n in range(len(batch))], f"{form}, key_column = city: keys in values are {keys}"

    def test_keys_do_not_depend_on_other_columns(self, rig: EncoderRig, topic: str) -> None:
        """A key has the same bytes before and after other columns are added, dropped, widened or renamed.

        The changes of a key therefore stay in one partition. Look for a schema version or id that covers more than the
        key columns.
        """
        versions = [
            table("orders", {"id": INT8, **others}, version=version)
            for version, others in enumerate(
                [{"a": _INT4, "b": TEXT}, {"a": _INT4, "b": TEXT, "c": TEXT}, {"a": INT8, "b": TEXT}, {"z": TEXT}], 1
            )
        ]
        for form in rig.some(output="messages"):
            one_for_all = rig.encoder(form)
            for encoders in ([one_for_all] * len(versions), [rig.encoder(form) for _ in versions]):
                found = {
                    pairs_of(encoder.encode(rows(schema, [Change({"id": 7})]), topic=topic))[0][0]
                    for encoder, schema in zip(encoders, versions, strict=True)
                }
                assert len(found) == 1, (
                    f"{form}: the bytes of the key changed when other columns changed: {sorted(found)[:4]}"
                )


def _check_distinct(
    rig: EncoderRig, form: Form, schema: TableSchema, keys: Sequence[dict[str, Any]], topic: str
) -> None:
    encoder = rig.encoder(form)
    seen: dict[bytes, dict[str, Any]] = {}
    for key, found in _keys(encoder, schema, keys, topic):
        assert found not in seen, f"{form}: the keys {seen[found]!r} and {key!r} have the same bytes {found!r}"
        seen[found] = key


def _keys(encoder: Any, schema: TableSchema, keys: Sequence[dict[str, Any]], topic: str) -> list[Any]:
    """Return keys with their bytes, without those that cannot be encoded."""

    def encoded(some: Sequence[dict[str, Any]]) -> list[Any]:
        batch: RowBatch = rows(schema, [Change(key) for key in some])
        return list(zip(some, (key for key, _ in pairs_of(encoder.encode(batch, topic=topic))), strict=True))

    try:
        return encoded(keys)
    except EncodeError:
        found = []
        for key in keys:
            try:
                found += encoded([key])
            except EncodeError:
                continue
        return found


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return *values* without those that are the same key in a database, such as 0 and -0."""
    return [value for index, value in enumerate(values) if value not in values[:index]]
