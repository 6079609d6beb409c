"""The examples on the pages about Parquet and CSV run and return the documented results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_encoder_csv.encoder import CsvEncoder
from cdc_encoder_csv.options import CsvOptions
from cdc_encoder_parquet.encoder import ParquetEncoder
from cdc_encoder_parquet.options import ParquetOptions
from cdc_testing.pages import Page

from cdc_core import Encoder, EncoderContext, Envelope, Op, RowBatch, Timestamp

OLD = table("orders", {"id": INT8, "note": TEXT})
NEW = table("orders", {"id": INT8, "note": TEXT, "city": TEXT}, version=2)


def write(path: Path, encoder_class: type[Encoder], options: Any, batch: RowBatch, *, updated: bool) -> None:
    envelope = Envelope(updated=updated, key_in_value=True)
    context = EncoderContext(changefeed="c", envelope=envelope, options=options, output="files")
    body = encoder_class(context).open_body("orders")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(body.write(batch)) + bytes(body.finish()))


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of two versions of a table, in the current directory of the examples."""
    monkeypatch.chdir(tmp_path)
    first = [Change({"id": n, "note": f"first {n}"}, updated=Timestamp(999)) for n in range(4)]
    second = [
        Change({"id": 1, "note": "second", "city": "x"}, op=Op.UPDATE, updated=Timestamp(1000)),
        Change({"id": 2}, op=Op.DELETE, updated=Timestamp(1000, 1)),
    ]
    found = []
    for number, batch in enumerate((rows(OLD, first), rows(NEW, second)), 1):
        found.append(f"out/2020-04-02/{number}-orders-{number}.parquet")
        write(Path(found[-1]), ParquetEncoder, ParquetOptions(), batch, updated=True)
    Path("out/2020-04-02/3.RESOLVED").write_text('{"resolved":"1000.0000000001"}')
    return found


def example(page: str, word: str) -> str:
    (text,) = (text for text in Page(page).blocks("python") if f"import {word}" in text)
    return text


STATE = [
    {"id": 0, "note": "first 0", "city": None},
    {"id": 1, "note": "second", "city": "x"},
    {"id": 3, "note": "first 3", "city": None},
]


@pytest.mark.parametrize("tool", ["duckdb", "polars"])
def test_the_newest_versions_are_found(paths: list[str], tool: str) -> None:
    names: dict[str, Any] = {"paths": paths}
    exec(example("parquet.md", tool), names)
    state = names["state"].to_arrow() if tool == "polars" else names["state"]
    assert sorted(state.select(["id", "note", "city"]).to_pylist(), key=lambda row: row["id"]) == STATE


def test_files_are_read_with_the_newest_schema(paths: list[str]) -> None:
    names: dict[str, Any] = {"paths": paths}
    exec(example("parquet.md", "pyarrow.dataset as ds"), names)
    assert names["changes"].column("city").to_pylist() == [None] * 4 + ["x", None]
    assert names["deleted"].to_pylist() == [2]


def test_every_example_is_run() -> None:
    assert [block.split()[1] for block in Page("parquet.md").blocks("python")] == [
        "duckdb",
        "polars",
        "pyarrow.compute",
        "pyspark.sql",  # run by the end-to-end test, which has Spark
    ]


def test_the_metadata_contains_the_key(paths: list[str]) -> None:
    assert b'"primary_key":["id"]' in pq.read_schema(paths[0]).metadata[b"cdc.schema"]


@pytest.mark.parametrize("tool", ["duckdb", "polars"])
def test_csv_is_read_with_nulls_and_empty_texts(tmp_path: Path, tool: str) -> None:
    path = tmp_path / "orders.csv"
    notes = ["", None, "a", 'say "hi"\n', "NULL"]
    batch = rows(OLD, [Change({"id": n, "note": note}, op=Op.SCAN) for n, note in enumerate(notes)])
    write(path, CsvEncoder, CsvOptions(csv_header=True), batch, updated=False)
    names: dict[str, Any] = {"path": path}
    exec(example("csv.md", tool), names)
    found = names["frame"].to_arrow() if tool == "polars" else names["table"]
    assert found.sort_by("id").column("note").to_pylist() == notes
