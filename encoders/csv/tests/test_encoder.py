from __future__ import annotations

import csv
import io
from typing import Any

import duckdb
import polars as pl
import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_csv.decoder import CsvDecoder
from cdc_encoder_csv.encoder import CsvEncoder
from cdc_encoder_csv.options import CsvOptions
from cdc_encoder_csv.plugin import cdc_register_encoders
from cdc_testing.table_rows import Row, make_rows

from cdc_core import Changefeed, ColumnType, EncodeError, EncoderContext, Envelope, Kind, Op, OptionError, RowBatch
from cdc_core.config.resolve import resolve
from cdc_core.plugins.host import PluginHost

TEXTS = [
    *("", " ", "NULL", "a", 'say "hi"', "a,b", "two\nlines", "\r\n", "\\.", "'", "é 🎉", '"', " x", "x ", "\\N"),
    None,
]


def context(envelope: dict[str, Any] | None = None, **options: Any) -> EncoderContext:
    return EncoderContext(
        changefeed="feed", envelope=Envelope(**(envelope or {})), options=CsvOptions(**options), output="files"
    )


def written(*batches: RowBatch, **options: Any) -> bytes:
    body = CsvEncoder(context(**options)).open_body("t")
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])


@pytest.fixture
def texts() -> RowBatch:
    changes = [Row(op=Op.SCAN, after={"id": number, "t": text}) for number, text in enumerate(TEXTS)]
    return make_rows({"id": INT8, "t": TEXT}, changes, primary_key=["id"])


def sample(kind: Kind, values: list[Any], **more: Any) -> RowBatch:
    type_ = ColumnType(kind=kind, source=str(kind), **more)
    changes = [Row(op=Op.SCAN, after={"id": number, "v": value}) for number, value in enumerate(values)]
    return make_rows({"id": INT8, "v": type_}, changes, primary_key=["id"])


US = 1_000_000
CASES: list[tuple[Kind, Any, str]] = [
    (Kind.BOOL, True, "true"),
    (Kind.INT, -7, "-7"),
    (Kind.FLOAT, 0.1, "0.1"),
    (Kind.FLOAT, float("nan"), "NaN"),
    (Kind.FLOAT, float("-inf"), "-Infinity"),
    (Kind.DECIMAL, "22.30", "22.30"),
    (Kind.STRING, "a", "a"),
    (Kind.STRING, "a,b", '"a,b"'),
    (Kind.BYTES, b"ab", "\\x6162"),
    (Kind.BYTES, b"", "\\x"),
    (Kind.DATE, 18292, "2020-01-31"),
    (Kind.DATE, 2**31 - 1, "infinity"),
    (Kind.DATE, -(2**31), "-infinity"),
    (Kind.DATE, -719529, "0002-12-31 BC"),
    (Kind.DATE, -719528, "0001-01-01 BC"),
    (Kind.DATE, -719162, "0001-01-01"),
    (Kind.DATE, 2_932_897, "10000-01-01"),
    (Kind.TIME, 86_400_000_000, "24:00:00"),
    (Kind.TIMESTAMP, 1_580_474_096_789_000, "2020-01-31 12:34:56.789"),
    (Kind.TIMESTAMPTZ, 1_580_474_096_000_000, "2020-01-31 12:34:56+00"),
    (Kind.TIMESTAMPTZ, -719529 * 86_400 * US, "0002-12-31 00:00:00+00 BC"),
    (Kind.TIMESTAMPTZ, 2**63 - 1, "infinity"),
    (Kind.JSON, '{"a": 1}', '"{""a"": 1}"'),
    (Kind.COMPOSITE, '{"a": 1}', '"{""a"": 1}"'),
]


@pytest.mark.parametrize(("kind", "value", "text"), CASES)
def test_a_value_is_written_as_sql_text(kind: Kind, value: Any, text: str) -> None:
    rows = sample(kind, [value, None, value])
    assert written(rows).decode() == f"0,{text}\n1,\n2,{text}\n"
    assert written(rows, csv_null="NULL").decode() == f"0,{text}\n1,NULL\n2,{text}\n"


ARRAYS = [
    (Kind.INT, "[1, null, -2]", "{1, null, -2}"),
    (Kind.INT, "[[1, 2], [3, 4]]", "{{1, 2}, {3, 4}}"),
    (Kind.INT, "[]", "{}"),
    (Kind.BOOL, "[true, false]", "{true, false}"),
    (Kind.FLOAT, '[1.5, "NaN"]', '{1.5, "NaN"}'),
    (Kind.STRING, '["a", "NULL", "", "[", "é"]', '{"a", "NULL", "", "[", "é"}'),
    (Kind.STRING, r'["say \"hi\"", "\\"]', r'{"say \"hi\"", "\\"}'),
    (Kind.STRING, r'["two\nlines", "\u0001", "\\n"]', '{"two\nlines", "\x01", "\\\\n"}'),
    (Kind.BYTES, r'["\\x00ff"]', r'{"\\x00ff"}'),
    (Kind.DATE, '["-0043-03-15", "2020-01-31", "0000-01-01"]', '{"0044-03-15 BC", "2020-01-31", "0001-01-01 BC"}'),
    (Kind.JSON, r'[{"a": "b\n"}, null, [1]]', r'{"{\"a\": \"b\\n\"}", null, "[1]"}'),
    (Kind.COMPOSITE, '[{"a": 1}]', '[{"a": 1}]'),
]


@pytest.mark.parametrize(("kind", "text", "literal"), ARRAYS)
def test_an_array_is_a_literal(kind: Kind, text: str, literal: str) -> None:
    element = ColumnType(kind=kind, source=str(kind))
    rows = sample(Kind.ARRAY, [text, None, text], element=element)
    field = literal if literal == "{}" else '"' + literal.replace('"', '""') + '"'
    assert written(rows.slice(1)).decode() == f"1,\n2,{field}\n"
    found = CsvDecoder(context()).file(rows.schema, written(rows))
    assert [dict(value.after or {})["v"] for value in found] == [text, None, text]


@pytest.mark.parametrize("null", ["", "NULL", "\\N", "a", "0"])
def test_a_null_differs_from_every_text(texts: RowBatch, null: str) -> None:
    body = written(texts, csv_null=null)
    found = CsvDecoder(context(csv_null=null)).file(texts.schema, body)
    assert [dict(row.after or {})["t"] for row in found] == TEXTS
    unquoted = [line for line in body.split(b"\n") if line == f"{len(TEXTS) - 1},{null}".encode()]
    assert len(unquoted) == 1


def test_python_reads_the_texts(texts: RowBatch) -> None:
    found = [fields[1] for fields in csv.reader(io.StringIO(written(texts).decode(), newline=""))]
    assert found == [text or "" for text in TEXTS]


def test_polars_reads_the_texts_and_nulls(texts: RowBatch) -> None:
    frame = pl.read_csv(io.BytesIO(written(texts, csv_header=True)), schema={"id": pl.Int64, "t": pl.String})
    assert frame["t"].to_list() == TEXTS


def test_duckdb_reads_the_texts_and_nulls(texts: RowBatch, tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(written(texts))
    columns = "columns = {'id': 'BIGINT', 't': 'VARCHAR'}, quote = '\"', escape = '\"', allow_quoted_nulls = false"
    found = duckdb.sql(f"FROM read_csv('{path}', header = false, auto_detect = false, {columns}) ORDER BY id")
    assert [text for _, text in found.fetchall()] == TEXTS


def test_a_text_at_the_start_of_a_file_is_not_a_byte_order_mark() -> None:
    rows = make_rows({"t": TEXT}, [Row(op=Op.SCAN, key={"t": "\ufeffa"}, after={"t": "\ufeffa"})], primary_key=["t"])
    assert pl.read_csv(io.BytesIO(written(rows)), has_header=False).rows() == [("\ufeffa",)]


def test_a_header_is_written_once_at_the_start() -> None:
    odd = 'odd "name",'
    changes = [Row(op=Op.SCAN, after={"id": 1, odd: None})] * 2
    rows = make_rows({"id": INT8, odd: TEXT}, changes, primary_key=["id"])
    body = written(rows.slice(0, 0), rows.slice(0, 1), rows.slice(1), csv_header=True)
    assert body == b'id,"odd ""name"","\n1,\n1,\n'
    assert len(CsvDecoder(context(csv_header=True)).file(rows.schema, body)) == 2


def test_a_message_is_a_line_and_its_key_a_line_of_the_key() -> None:
    changes = [Row(after={"a": "x,y", "b": 1, "c": None})]
    rows = make_rows({"a": TEXT, "b": INT8, "c": TEXT}, changes, primary_key=["b", "a"])
    batch = CsvEncoder(context()).encode(rows, topic="t")
    assert (batch.key.to_pylist(), batch.value.to_pylist()) == ([b'1,"x,y"'], [b'"x,y",1,'])


def test_a_deleted_row_is_refused_by_table_and_key() -> None:
    rows = make_rows({"id": INT8}, [Row(after={"id": 1}), Row(op=Op.DELETE, key=(47,))], primary_key=["id"])
    encoder = CsvEncoder(context())
    for write in (encoder.open_body("t").write, lambda batch: encoder.encode(batch, topic="t")):
        with pytest.raises(EncodeError, match=r"cannot encode a deleted row of table \S+ as CSV \(key .*'id': 47"):
            write(rows)


@pytest.mark.parametrize("name", ["updated", "topic_in_value", "diff", "mvcc_timestamp"])
def test_metadata_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"only the table's columns, not '{name}'"):
        CsvEncoder(context({name: True})).check([])
    CsvEncoder(context({"key_in_value": True})).check([])


def test_the_text_of_null_must_not_need_quotes() -> None:
    with pytest.raises(ValueError, match="'csv_null' must not contain commas, quotes or line ends"):
        CsvOptions(csv_null="a,b")


def test_the_format_is_for_scans_only() -> None:
    (registration,) = cdc_register_encoders()
    assert registration.scans_only
    host = PluginHost.load()
    feed = {"name": "x", "source": "postgresql://h/d", "tables": ("t",), "sink": "file:///d", "format": "csv"}
    with pytest.raises(OptionError, match="set initial_scan = 'only'"):
        resolve(Changefeed(**feed), host)  # type: ignore[arg-type]
    assert resolve(Changefeed(**feed, options={"initial_scan": "only"}), host).encoder.name == "csv"  # type: ignore[arg-type]
