"""The items of PostgreSQL arrays, which are JSON in a batch, are written like columns of their type."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from cdc_column_texts.binary import joined
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.values import value_pieces
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES

from cdc_core import ColumnType, EncoderContext, Envelope

_ROWS = 100
_MAKERS = {**BINARY_MAKERS, **TEXT_MAKERS}
_NO_ARRAY_OF_THEM = {"positives", "int2vector"}
_NULL_IS_NULL = {"json", "jsonb", "document"}
"""In an array, a JSON null and a SQL NULL are the same."""
_OPTIONS = AvroOptions(avro_special_values="string")


def tables(probe: LogProbe, seed: int, items: str) -> Iterator[tuple[str, str]]:
    """Yield each type and its table, with values x in column v and arrays of *items* in column a."""
    rng = random.Random(seed)
    probe.execute(TYPES)
    for number, (type_, make) in enumerate(_MAKERS.items()):
        if not type_.endswith("[]") and type_ not in _NO_ARRAY_OF_THEM:
            table = f"t{number}"
            probe.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a {type_}[], v {type_})")
            probe.execute(
                f"INSERT INTO {table} SELECT n - 1, ARRAY[{items}], x"
                f" FROM (SELECT n, t::{type_} AS x FROM unnest(%s::text[]) WITH ORDINALITY u(t, n)) y",
                [[make(rng) for _ in range(_ROWS)]],
            )
            yield type_, table


@pytest.mark.parametrize("seed", range(2))
def test_an_item_is_written_like_a_column_of_its_type(database: str, seed: int) -> None:
    encoder = JsonEncoder(EncoderContext(changefeed="c", envelope=Envelope(), options=JsonOptions()))
    with LogProbe(database) as probe:
        for name, table in tables(probe, seed, "x"):
            messages = encoder.encode(probe.scanned(table), topic=table).value.to_pylist()
            assert len(messages) == _ROWS, name
            for id_, message in enumerate(messages):
                element = message.decode().removeprefix('{"after": {"a": [').partition(f'], "id": {id_}, "v": ')[0]
                assert message.decode() == f'{{"after": {{"a": [{element}], "id": {id_}, "v": {element}}}}}', name


def test_an_item_in_avro_is_written_like_a_column_of_its_type(database: str) -> None:
    with LogProbe(database) as probe:
        for name, table in tables(probe, 1, "x, NULL"):
            version = probe.version(table)
            rows = probe.scan(version)
            arrays, alone = (_written(rows.field(column), version.schema.column(column).type) for column in "av")
            assert len(arrays) == _ROWS, name
            if name not in _NULL_IS_NULL:
                assert arrays == [b"\x02\x04" + value + b"\x00\x00" for value in alone], name


def _written(array: pa.Array, type_: ColumnType) -> list[bytes]:
    unions: list[bytes] = joined(value_pieces(array, type_, _OPTIONS), len(array)).to_pylist()
    return unions
