"""Mistakes with values, keys and metadata, and with versions of a table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_core import Column, EncodeError, EncoderContext, Kind, MessageBatch, Op, RowBatch, RowPlace, Timestamp

Image = dict[str, Any] | None


class ChangingEncoder(ReferenceEncoder):
    """Can write other values in rows than the reference encoder, but not in keys."""

    def image(self, rows: RowBatch, index: int, name: str) -> Image:
        image = super().image(rows, index, name)
        if image is None:
            return None
        values = ((column, image[column.name]) for column in rows.schema.columns)
        return {
            column.name: self.null(column.type.kind) if value is None else self.changed(column.type.kind, value)
            for column, value in values
        }

    def changed(self, kind: Kind, value: Any) -> Any:  # noqa: ARG002
        return value

    def null(self, kind: Kind) -> Any:  # noqa: ARG002
        return None


@mistakes
class Values(ChangingEncoder):
    @breaks("test_numbers_come_back_exactly", "changed")
    def converts_integers_to_doubles(self, kind: Kind, value: Any) -> Any:
        """Converts integers to doubles, like JavaScript and many JSON parsers."""
        return int(float(value)) if kind is Kind.INT else value

    @breaks("test_texts_come_back_exactly", "changed")
    def trims_texts(self, kind: Kind, value: Any) -> Any:
        """Removes blanks at both ends of texts."""
        return value.strip() if kind is Kind.STRING else value

    @breaks("test_bytes_come_back_exactly", "changed")
    def truncates_bytes_at_zero(self, kind: Kind, value: Any) -> Any:
        """Truncates bytes at the first zero, like a C string."""
        return bytes.fromhex(value).partition(b"\0")[0].hex() if kind is Kind.BYTES else value

    @breaks("test_dates_and_times_come_back_exactly", "changed")
    def wraps_midnight(self, kind: Kind, value: Any) -> Any:
        """Writes 24:00:00 as 00:00:00, like Python's `time`."""
        return value % 86_400_000_000 if kind is Kind.TIME else value

    @breaks("test_plain_values_come_back", "changed")
    def writes_labels_in_ascii(self, kind: Kind, value: Any) -> Any:
        """Replaces characters in enum labels that are not ASCII."""
        return value.encode("ascii", "replace").decode() if kind is Kind.ENUM else value

    @breaks("test_nested_values_come_back", "changed")
    def reformats_json(self, kind: Kind, value: Any) -> Any:
        """Parses and reformats JSON with numbers as doubles."""
        return json.dumps(json.loads(value, parse_int=float)) if kind is Kind.JSON else value

    @breaks("test_nulls_come_back_as_nulls", "null")
    def writes_null_as_nan(self, kind: Kind) -> Any:
        """Writes nulls of floats as NaN, like pandas."""
        return "nan" if kind is Kind.FLOAT else None

    @breaks("test_an_unknown_value_is_not_null", "lacking")
    def writes_null_for_unknown_values(self, rows: RowBatch, index: int) -> list[str]:  # noqa: ARG002
        """Does not look at the column `unavailable`."""
        return []

    @breaks("test_a_json_null_differs_from_an_sql_null", "changed")
    def merges_nulls(self, kind: Kind, value: Any) -> Any:
        """Writes a JSON null as a SQL NULL."""
        return None if kind is Kind.JSON and value == "null" else value

    @breaks("test_encode_errors_name_table_column_and_key", "cell")
    def omits_the_key_of_errors(self, rows: RowBatch, index: int, column: Column, scalar: pa.Scalar) -> Any:
        """Raises EncodeError without the key of the row."""
        try:
            return super().cell(rows, index, column, scalar)
        except EncodeError as error:
            raise EncodeError(f"a value of column {column.name} of table {rows.schema.name} is not a number") from error

    @breaks("test_columns_keep_their_names", "image")
    def lowercases_column_names(self, rows: RowBatch, index: int, name: str) -> Image:
        """Converts column names to lower case, like unquoted SQL."""
        image = super().image(rows, index, name)
        return image and {column.lower(): value for column, value in image.items()}


@mistakes
class Keys(ReferenceEncoder):
    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.columns: dict[str, list[str]] = {}

    @breaks("test_equal_keys_have_equal_bytes", "encode")
    def spaces_keys_of_deletes(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Writes the keys of deletes with another JSON library, which adds a blank after each comma."""
        ops = iter(rows.column("op").to_pylist())
        batch = super().encode(rows, topic=topic)
        return _keyed(batch, lambda key: json.dumps(json.loads(key)).encode() if next(ops) == Op.DELETE else key)

    @breaks("test_different_keys_have_different_bytes", "key")
    def lowercases_keys(self, rows: RowBatch, index: int) -> list[Any]:
        """Converts texts in keys to lower case."""
        return [value.lower() if isinstance(value, str) else value for value in super().key(rows, index)]

    @breaks("test_composite_keys_have_key_order", "key")
    def sorts_key_columns(self, rows: RowBatch, index: int) -> list[Any]:
        """Sorts the columns of the key by name."""
        return [value for _, value in sorted(zip(rows.schema.primary_key, super().key(rows, index), strict=True))]

    @breaks("test_the_column_that_key_column_names_is_the_key", "keyed")
    def keeps_the_primary_key(self, rows: RowBatch) -> RowBatch:
        """Ignores the option key_column."""
        return rows

    @breaks("test_keys_do_not_depend_on_other_columns", "encode")
    def adds_the_version_to_keys(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Adds the version of the table to keys, as blanks, like the id of a schema of all columns."""
        return _keyed(super().encode(rows, topic=topic), lambda key: key + b" " * rows.schema.version)

    @breaks("test_rows_are_encoded_with_the_schema_of_their_batch", "image")
    def caches_the_first_version(self, rows: RowBatch, index: int, name: str) -> Image:
        """Caches the columns of a table from its first batch."""
        known = self.columns.setdefault(rows.schema.name.full, [column.name for column in rows.schema.columns])
        image = super().image(rows, index, name)
        return image and {column: image[column] for column in known if column in image}


@mistakes
class Envelopes(ReferenceEncoder):
    @breaks("test_a_delete_names_the_deleted_row", "value")
    def writes_no_tombstones(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> Image:
        """Writes a deleted row in `key_only` like any other, as CockroachDB does."""
        value = super().value(rows, index, topic, key)
        return {} if self.context.envelope.row is RowPlace.NOWHERE else value

    @breaks("test_values_under_a_delete_are_ignored", "value")
    def reads_values_under_nulls(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> Image:
        """Ignores the null of a row when its fields have values."""
        value = super().value(rows, index, topic, key)
        known = [column for column in rows.schema.columns if column.name not in self.lacking(rows, index)]
        fields = [rows.column("after").field(column.name)[index] for column in known]
        if value is not None and "after" in value and any(field.is_valid for field in fields):
            pairs = zip(known, fields, strict=True)
            value["after"] = {column.name: self.cell(rows, index, column, field) for column, field in pairs}
        return value

    @breaks("test_diff_adds_the_row_before", "image")
    def shows_the_row_after_twice(self, rows: RowBatch, index: int, name: str) -> Image:
        """Writes the row after an update as the row before."""
        updated = rows.column("op")[index].as_py() == Op.UPDATE
        return super().image(rows, index, "after" if updated else name)

    @breaks("test_updated_is_exact", "timestamp")
    def truncates_times(self, rows: RowBatch, index: int, name: str) -> str:
        """Converts `updated` to Python's datetime, which has microseconds."""
        time = Timestamp.parse(super().timestamp(rows, index, name))
        return str(Timestamp(time.wall // 1000 * 1000, time.logical)) if name == "updated" else str(time)

    @breaks("test_mvcc_timestamps_are_exact", "timestamp")
    def uses_the_time_of_the_scan(self, rows: RowBatch, index: int, name: str) -> str:  # noqa: ARG002
        """Writes `updated` as the row's own time, which is wrong for scanned rows."""
        return super().timestamp(rows, index, "updated")

    @breaks("test_an_unknown_mvcc_timestamp_equals_updated", "timestamp")
    def writes_zero_for_unknown_times(self, rows: RowBatch, index: int, name: str) -> str:
        """Writes the time zero when the source does not know a row's own time."""
        unknown = name not in rows.batch.schema.names
        return str(Timestamp()) if unknown else super().timestamp(rows, index, name)

    @breaks("test_the_key_in_the_value_is_the_key", "value")
    def puts_the_key_in_table_order(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> Image:
        """Writes the key in the value in the column order of the table."""
        by_name = dict(zip(rows.schema.primary_key, key, strict=True))
        in_order = [by_name[column.name] for column in rows.schema.columns if column.name in by_name]
        return super().value(rows, index, topic, in_order)

    @breaks("test_the_topic_in_the_value_is_the_topic", "value")
    def writes_the_topic_in_ascii(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> Image:
        """Replaces characters of the topic that are not ASCII."""
        return super().value(rows, index, topic.encode("ascii", "replace").decode(), key)


def _keyed(batch: MessageBatch, change: Callable[[bytes], bytes]) -> MessageBatch:
    return dataclasses.replace(batch, key=pa.array(map(change, batch.key.to_pylist()), pa.large_binary()))
