from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_parquet.columns import SCHEMA_KEY
from cdc_encoder_parquet.decoder import ParquetDecoder
from cdc_encoder_parquet.encoder import ParquetEncoder
from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_parquet.plugin import cdc_register_encoders
from cdc_testing.table_rows import Row, make_rows

from cdc_core import (
    ColumnType,
    ConfigError,
    ContractError,
    EncodeError,
    EncoderContext,
    Envelope,
    Kind,
    Op,
    OptionError,
    RowBatch,
    TableSchema,
    Timestamp,
)

DATE = ColumnType(kind=Kind.DATE, source="date")
INFINITE_DATE, INFINITE = 2**31 - 1, 2**63 - 1


def context(envelope: dict[str, Any] | None = None, *, compression: str = "none", **options: Any) -> EncoderContext:
    return EncoderContext(
        changefeed="feed",
        envelope=Envelope(**({"updated": True, "key_in_value": True} | (envelope or {}))),
        options=ParquetOptions(**options),
        output="files",
        compression=compression,
    )


def written(context: EncoderContext, *batches: RowBatch) -> bytes:
    body = ParquetEncoder(context).open_body("t")
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])


def read(body: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(body))


@pytest.fixture
def many() -> RowBatch:
    changes = [Row(after={"a": n, "b": f"text {n} " * (n % 40)}, updated=Timestamp(n + 1, 1)) for n in range(1500)]
    changes[7] = Row(op=Op.DELETE, key=(7,))
    return make_rows({"a": INT8, "b": TEXT}, changes, primary_key=["a"])


def sample(type_: ColumnType, values: list[Any]) -> RowBatch:
    changes = [Row(after={"id": number, "v": value}) for number, value in enumerate(values)]
    return make_rows({"id": INT8, "v": type_}, changes, primary_key=["id"])


def test_columns_of_metadata_follow_those_of_the_table() -> None:
    changes = [
        Row(op=Op.SCAN, after={"id": 1, "v": "a"}),
        Row(op=Op.INSERT, after={"id": 2, "v": "b"}, updated=Timestamp(5, 6), mvcc=Timestamp(3, 4)),
        Row(op=Op.UPDATE, after={"id": 2, "v": None}, before={"id": 2, "v": "b"}),
        Row(op=Op.DELETE, before={"id": 2, "v": None}),
    ]
    rows = make_rows({"id": INT8, "v": TEXT}, changes, primary_key=["id"], diff=True, mvcc=True)
    table = read(written(context({"diff": True, "mvcc_timestamp": True}), rows))
    assert table.column_names == [
        "id",
        "v",
        "__crdb__event_type",
        "__crdb__updated",
        "__crdb__mvcc_timestamp",
        "__crdb__before",
        "__crdb__unavailable",
    ]
    found = table.to_pylist()
    assert [value["__crdb__event_type"] for value in found] == ["c", "c", "u", "d"]
    assert found[1]["__crdb__updated"] == "5.0000000006"
    assert found[1]["__crdb__mvcc_timestamp"] == "3.0000000004"
    assert found[3] | {"__crdb__updated": "", "__crdb__mvcc_timestamp": ""} == {
        "id": 2,
        "v": None,
        "__crdb__event_type": "d",
        "__crdb__updated": "",
        "__crdb__mvcc_timestamp": "",
        "__crdb__before": {"id": 2, "v": None},
        "__crdb__unavailable": None,
    }
    assert [value["__crdb__before"] for value in found[:3]] == [None, None, {"id": 2, "v": "b"}]
    names = ["id", "v", "__crdb__event_type", "__crdb__unavailable"]
    assert read(written(context({"updated": False}), rows)).column_names == names


def test_a_row_that_lacks_values_names_its_columns() -> None:
    changes = [
        Row(op=Op.INSERT, after={"id": 1, "v": "a", "w": None}),
        Row(op=Op.UPDATE, after={"id": 1, "v": None, "w": None}, unavailable=("v",)),
        Row(op=Op.UPDATE, after={"id": 2, "v": None, "w": None}, unavailable=("v", "w")),
        Row(op=Op.DELETE, key=(1,)),
    ]
    rows = make_rows({"id": INT8, "v": TEXT, "w": TEXT}, changes, primary_key=["id"])
    body = written(context(), rows.slice(0, 1), rows.slice(1))
    assert body == written(context(), rows)
    names = [None, ["v"], ["v", "w"], None]
    assert read(body).column("__crdb__unavailable").to_pylist() == names
    found = ParquetDecoder(context()).rows(rows.schema, body)
    assert found.column("unavailable").to_pylist() == names
    assert found.column("after").equals(rows.column("after"))
    decoded = ParquetDecoder(context()).file(rows.schema, body)
    assert [row.unavailable for row in decoded] == [(), ("v",), ("v", "w"), ()]
    assert [row.after for row in decoded] == [{"id": 1, "v": "a", "w": None}, {"id": 1, "w": None}, {"id": 2}, None]


def test_a_file_contains_the_schema_of_the_table(many: RowBatch) -> None:
    found = TableSchema.from_json(json.loads(read(written(context(), many)).schema.metadata[SCHEMA_KEY]))
    assert found == many.schema


def test_the_files_of_bare_and_wrapped_are_the_same(many: RowBatch) -> None:
    assert written(context({"name": "bare"}), many) == written(context(), many)


def test_the_same_rows_give_the_same_file_in_any_batches(many: RowBatch) -> None:
    small = context(parquet_row_group_size=20_000, compression="zstd")
    whole = written(small, many)
    assert pq.ParquetFile(io.BytesIO(whole)).num_row_groups > 5
    for size in (1, 7, 400, 1499):
        batches = [many.slice(start, min(size, len(many) - start)) for start in range(0, len(many), size)]
        assert written(small, many.slice(0, 0), *batches) == whole


def test_a_row_group_ends_with_the_row_that_makes_it_full() -> None:
    rows = make_rows(
        {"a": INT8, "b": TEXT}, [Row(after={"a": n, "b": "x" * 960}) for n in range(25)], primary_key=["a"]
    )
    file = pq.ParquetFile(io.BytesIO(written(context(parquet_row_group_size=10_000), rows)))
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [10, 10, 5]


def test_the_memory_of_pending_rows_is_reported_and_bounded(many: RowBatch) -> None:
    body = ParquetEncoder(context(parquet_row_group_size=50_000)).open_body("t")
    held = []
    for start in range(0, len(many), 10):
        body.write(many.slice(start, min(10, len(many) - start)))
        held.append(body.held_bytes)
    assert 0 < max(held) < 50_000
    assert min(held) < 10_000
    body.finish()
    assert body.held_bytes == 0


@pytest.mark.parametrize(("compression", "codec"), [("none", "UNCOMPRESSED"), ("gzip", "GZIP"), ("zstd", "ZSTD")])
def test_the_encoder_compresses_files_as_the_sink_says(many: RowBatch, compression: str, codec: str) -> None:
    body = written(context(compression=compression), many)
    assert pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0).column(0).compression == codec
    (registration,) = cdc_register_encoders()
    assert registration.compresses


CANNOT: list[tuple[ColumnType, Any, str]] = [
    (DATE, INFINITE_DATE, "no 'infinity'; set parquet_special_values"),
    (DATE, -INFINITE_DATE - 1, "no '-infinity'; set parquet_special_values"),
    (ColumnType(kind=Kind.TIME, source="time"), 86_400_000_000, "no '24:00:00'; set parquet_special_values"),
    (ColumnType(kind=Kind.TIMESTAMP, source="timestamp"), INFINITE, "no 'infinity'; set"),
    (ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamptz"), -INFINITE - 1, "no '-infinity'; set"),
    (ColumnType(kind=Kind.DECIMAL, source="", precision=4, scale=2), "NaN", "no 'NaN'; set parquet_special_values"),
    (ColumnType(kind=Kind.DECIMAL, source="", precision=4, scale=2), "Infinity", "no 'Infinity'; set"),
    (ColumnType(kind=Kind.DECIMAL, source="", precision=4, scale=2), "100.00", "precision 4 and scale 2"),
    (ColumnType(kind=Kind.DECIMAL, source="", precision=4, scale=2), "0.001", "precision 4 and scale 2"),
    (ColumnType(kind=Kind.DECIMAL, source="", precision=4, scale=2), "x", "the decimal 'x' is not a number"),
    (ColumnType(kind=Kind.ARRAY, source="", element=INT8), "[[1], [2]]", "several dimensions; set parquet_arrays"),
    (ColumnType(kind=Kind.ARRAY, source="", element=DATE), '["infinity"]', "no 'infinity'; set"),
]


@pytest.mark.parametrize(("type_", "value", "reason"), CANNOT)
def test_a_value_that_parquet_cannot_represent_is_refused_without_the_batch(
    type_: ColumnType, value: Any, reason: str
) -> None:
    good, bad = sample(type_, [None, None]), sample(type_, [None, None, value, None])
    body = ParquetEncoder(context(parquet_row_group_size=60)).open_body("t")
    parts = [bytes(body.write(good))]
    place = r"cannot encode column v of table public\.orders as Parquet \(key \{'id': 2\}\): .*"
    with pytest.raises(EncodeError, match=place + reason):
        body.write(bad)
    parts += [bytes(body.write(good)), bytes(body.finish())]
    assert b"".join(parts) == written(context(parquet_row_group_size=60), good, good)


def test_the_inner_dimensions_of_an_array_of_json_are_json_arrays() -> None:
    array = ColumnType(kind=Kind.ARRAY, source="jsonb[]", element=ColumnType(kind=Kind.JSON, source="jsonb"))
    rows = sample(array, ["[[1, 2], [3, 4]]"])
    assert read(written(context(), rows)).column("v").to_pylist() == [["[1, 2]", "[3, 4]"]]


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (DATE, INFINITE_DATE, "infinity"),
        (ColumnType(kind=Kind.TIME, source="time"), 86_400_000_000, "24:00:00"),
        (ColumnType(kind=Kind.TIMESTAMP, source=""), 1_580_474_096_789_000, "2020-01-31T12:34:56.789"),
        (ColumnType(kind=Kind.TIMESTAMPTZ, source=""), 1_580_474_096_789_000, "2020-01-31T12:34:56.789Z"),
        (ColumnType(kind=Kind.DECIMAL, source="", precision=4, scale=2), "NaN", "NaN"),
        (ColumnType(kind=Kind.ARRAY, source="", element=DATE), '["infinity"]', ["infinity"]),
    ],
)
def test_special_values_are_text_with_the_option(type_: ColumnType, value: Any, text: str | list[str]) -> None:
    rows = sample(type_, [value, None])
    body = written(context(parquet_special_values="string"), rows)
    assert read(body).column("v").to_pylist() == [text, None]


def test_special_values_of_rows_before_are_refused() -> None:
    changes = [
        Row(op=Op.UPDATE, after={"id": 1, "v": None}, before={"id": 1, "v": None}),
        Row(op=Op.UPDATE, after={"id": 2, "v": None}, before={"id": 2, "v": INFINITE_DATE}),
    ]
    rows = make_rows({"id": INT8, "v": DATE}, changes, primary_key=["id"], diff=True)
    with pytest.raises(EncodeError, match=r"column v of .* \(key \{'id': 2\}\)"):
        written(context({"diff": True}), rows)


def test_a_file_has_one_schema(many: RowBatch) -> None:
    other = make_rows({"a": INT8}, [Row(after={"a": 1})], primary_key=["a"], version=2)
    body = ParquetEncoder(context()).open_body("t")
    body.write(many)
    with pytest.raises(ContractError, match="two schema versions"):
        body.write(other)


@pytest.mark.parametrize("name", ["__crdb__event_type", "__crdb__updated", "__crdb__before", "__crdb__unavailable"])
def test_a_column_named_like_metadata_is_refused(name: str) -> None:
    rows = make_rows({"id": INT8, name: TEXT}, [Row(after={"id": 1, name: "x"})], primary_key=["id"])
    with pytest.raises(ConfigError, match=rf"table public\.orders has a column named {name}"):
        ParquetEncoder(context()).check([(rows.schema, "t")])


def test_the_topic_has_no_place() -> None:
    with pytest.raises(OptionError, match="files cannot hold 'topic_in_value'"):
        ParquetEncoder(context({"topic_in_value": True})).check([])


def test_a_row_group_has_a_size() -> None:
    with pytest.raises(ValueError, match="'parquet_row_group_size' must be at least 1 byte"):
        ParquetOptions(parquet_row_group_size=0)  # type: ignore[arg-type]


def test_there_are_no_messages(many: RowBatch) -> None:
    with pytest.raises(ContractError, match="writes only files"):
        ParquetEncoder(context()).encode(many, topic="t")
    with pytest.raises(ValueError, match="writes no messages"):
        ParquetDecoder(context()).message(many.schema, b"", b"")


def test_a_resolved_mark_is_json() -> None:
    payload = ParquetEncoder(context()).encode_resolved("", Timestamp(5, 6))
    assert json.loads(payload) == {"resolved": "5.0000000006"}
    assert ParquetDecoder(context()).resolved(payload) == Timestamp(5, 6)


def test_decimals_keep_the_digits_of_their_scale() -> None:
    values = ["0.0000000001", "-0.0000000001", "0.0000000000", "1234567890.1234567890", "-10.0000000000", None]
    rows = sample(ColumnType(kind=Kind.DECIMAL, source="", precision=38, scale=10), values)
    found = ParquetDecoder(context()).rows(rows.schema, written(context(), rows))
    assert found.column("after").field("v").to_pylist() == values


@pytest.mark.parametrize("text", ["9" * 39, "340282366920938463463374607431768211457", "1." + "0" * 41])
def test_a_decimal_of_more_digits_than_arrow_counts_is_refused(text: str) -> None:
    rows = sample(ColumnType(kind=Kind.DECIMAL, source="", precision=38, scale=2), [text])
    with pytest.raises(EncodeError, match="is not a decimal of the declared precision 38 and scale 2"):
        written(context(), rows)


def test_rows_of_another_version_of_the_table_are_read() -> None:
    old = make_rows(
        {"id": INT8, "v": DATE, "gone": TEXT}, [Row(after={"id": 1, "v": 0, "gone": "x"})], primary_key=["id"]
    )
    now = make_rows({"id": INT8, "v": TEXT, "new": TEXT}, [], primary_key=["id"], version=2)
    ((decoded),) = ParquetDecoder(context()).file(now.schema, written(context(), old))
    assert dict(decoded.after or {}) == {"id": 1, "v": "1970-01-01", "gone": "x"}
