from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any, Literal

import fastavro
import polars as pl
import pytest
from cdc_conformance.rows import INT8, TEXT
from cdc_encoder_avro.container import BLOCK_BYTES, read_container
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_testing.table_rows import Row, make_rows

from cdc_core import (
    ColumnType,
    ContractError,
    EncoderContext,
    Envelope,
    Kind,
    Op,
    OptionError,
    RowBatch,
    Timestamp,
)

Codec = Literal["null", "deflate", "zstandard", "snappy"]
CODECS: list[Codec] = ["null", "deflate", "zstandard", "snappy"]


def encoder_with(codec: Codec = "null", **envelope: Any) -> AvroEncoder:
    envelope = {"key_in_value": True, "updated": True, **envelope}
    options = AvroOptions(avro_codec=codec)
    return AvroEncoder(
        EncoderContext(changefeed="feed", envelope=Envelope(**envelope), options=options, output="files")
    )


def read_file(body: bytes) -> list[dict[str, Any]]:
    return read_container(body)[1]


def written(encoder: AvroEncoder, *batches: RowBatch, topic: str = "orders") -> bytes:
    body = encoder.open_body(topic)
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])


@pytest.fixture
def rows() -> RowBatch:
    changes = [Row(after={"a": n, "b": f"text {n} " * (n % 40)}, updated=Timestamp(n, 1)) for n in range(1500)]
    changes[7] = Row(op=Op.DELETE, key=(7,))
    made: RowBatch = make_rows({"a": INT8, "b": TEXT}, changes, primary_key=["a"])
    return made


def expected(rows: RowBatch) -> list[dict[str, Any]]:
    columns = {name: rows.column(name).to_pylist() for name in ("after", "updated", "key")}
    return [
        {
            "after": after,
            "updated": str(Timestamp(stamp["wall"], stamp["logical"])),
            "key": key,
            "unavailable": None,
        }
        for after, stamp, key in zip(*columns.values(), strict=True)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_is_decoded_to_its_rows(rows: RowBatch, codec: Codec) -> None:
    assert read_file(written(encoder_with(codec), rows)) == expected(rows)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_fastavro_reads_files(rows: RowBatch, codec: Codec) -> None:
    assert list(fastavro.reader(io.BytesIO(written(encoder_with(codec), rows)))) == expected(rows)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_polars_reads_files(rows: RowBatch, codec: Codec) -> None:
    frame = pl.read_avro(io.BytesIO(written(encoder_with(codec), rows)))
    assert [row["after"] for row in frame.to_dicts()] == [row["after"] for row in expected(rows)]
    assert frame["updated"].to_list() == [row["updated"] for row in expected(rows)]


@pytest.mark.parametrize("precision", [10, 30])
def test_readers_see_a_numeric_as_a_nullable_decimal(precision: int) -> None:
    numeric = ColumnType(kind=Kind.DECIMAL, source=f"numeric({precision},2)", precision=precision, scale=2)
    texts = ["-0.01", None, "12345678.90", "0.00"]
    changes = [Row(after={"a": n, "n": text}) for n, text in enumerate(texts)]
    file = written(encoder_with(), make_rows({"a": INT8, "n": numeric}, changes, primary_key=["a"]))
    numbers = [None if text is None else Decimal(text) for text in texts]
    assert [record["after"]["n"] for record in fastavro.reader(io.BytesIO(file))] == numbers
    column = pl.read_avro(io.BytesIO(file))["after"].struct.field("n")
    assert column.dtype == pl.Decimal(precision, 2)
    assert column.to_list() == numbers


def test_a_file_is_what_fastavro_would_write(rows: RowBatch) -> None:
    ours = written(encoder_with(), rows)
    reader = fastavro.reader(io.BytesIO(ours))
    out = io.BytesIO()
    fastavro.writer(
        out,
        json.loads(reader.metadata["avro.schema"]),
        expected(rows),
        sync_interval=BLOCK_BYTES,
        sync_marker=ours[-16:],
    )
    theirs = out.getvalue()
    assert len(ours) == len(ours.partition(ours[-16:])[0]) + 16 + len(theirs.partition(ours[-16:])[2])
    assert ours.partition(ours[-16:])[2] == theirs.partition(ours[-16:])[2]


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_rows_give_the_same_file_in_any_batches(rows: RowBatch, codec: Codec) -> None:
    whole = written(encoder_with(codec), rows)
    for size in (1, 7, 400, 1499):
        batches = [rows.slice(start, min(size, len(rows) - start)) for start in range(0, len(rows), size)]
        assert written(encoder_with(codec), rows.slice(0, 0), *batches) == whole


def test_blocks_are_bounded_by_bytes(rows: RowBatch) -> None:
    sizes = [block.num_records for block in fastavro.block_reader(io.BytesIO(written(encoder_with(), rows)))]
    assert sum(sizes) == len(rows)
    assert len(sizes) > 3
    large = make_rows(
        {"a": INT8, "b": TEXT}, [Row(after={"a": n, "b": "x" * 200_000}) for n in range(3)], primary_key=["a"]
    )
    sizes = [block.num_records for block in fastavro.block_reader(io.BytesIO(written(encoder_with(), large)))]
    assert sizes == [1, 1, 1]


def test_the_bytes_of_full_blocks_are_final(rows: RowBatch) -> None:
    body = encoder_with().open_body("orders")
    early = bytes(body.write(rows))
    assert len(early) > 2 * BLOCK_BYTES
    assert 0 < len(bytes(body.finish())) < BLOCK_BYTES + 1000


def test_files_of_different_topics_or_rows_have_different_sync_markers(rows: RowBatch) -> None:
    marks = {
        written(encoder_with(), rows)[-16:],
        written(encoder_with(), rows, topic="other")[-16:],
        written(encoder_with(), rows.slice(1))[-16:],
    }
    assert len(marks) == 3


def test_a_file_has_no_field_for_resolved_marks_and_needs_no_registry(rows: RowBatch) -> None:
    schema = json.loads(encoder_with().file_schema(rows.schema, "orders"))
    assert [field["name"] for field in schema["fields"]] == ["after", "updated", "key", "unavailable"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_resolved_mark_is_a_separate_file(codec: Codec) -> None:
    payload = encoder_with(codec).encode_resolved("", Timestamp(5, 6))
    assert read_file(payload) == [{"resolved": str(Timestamp(5, 6))}]
    assert payload == encoder_with(codec).encode_resolved("", Timestamp(5, 6))


def test_a_file_has_one_schema(rows: RowBatch) -> None:
    other = make_rows({"a": INT8}, [Row(after={"a": 1})], primary_key=["a"], version=2)
    body = encoder_with().open_body("orders")
    body.write(rows)
    with pytest.raises(ContractError, match="two schema versions"):
        body.write(other)


def test_files_require_the_key_in_the_value() -> None:
    with pytest.raises(OptionError, match="files require option 'key_in_value'"):
        encoder_with(key_in_value=False).check([])
    encoder_with().check([])


def test_a_damaged_file_is_refused(rows: RowBatch) -> None:
    data = bytearray(written(encoder_with("snappy"), rows))
    with pytest.raises(ValueError, match="not an Avro object container file"):
        read_file(b"what" + bytes(data[4:]))
    data[-1] ^= 1
    with pytest.raises(ValueError, match="has a different sync marker than the file"):
        read_file(bytes(data))
    data[-1] ^= 1
    data[-17] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        read_file(bytes(data))
