"""The items of PostgreSQL arrays, which are JSON in a batch, have the JSON form of columns of their type."""

from __future__ import annotations

import random

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES

from cdc_core import EncoderContext, Envelope

_ROWS = 100
_NO_ARRAY_OF_THEM = {"positives", "int2vector"}
_TYPES = [name for name in (*BINARY_MAKERS, *TEXT_MAKERS) if not name.endswith("[]") and name not in _NO_ARRAY_OF_THEM]


@pytest.mark.parametrize("seed", range(2))
def test_an_item_is_written_like_a_column_of_its_type(database: str, seed: int) -> None:
    encoder = JsonEncoder(EncoderContext(changefeed="c", envelope=Envelope(), options=JsonOptions()))
    rng = random.Random(seed)
    with LogProbe(database) as probe:
        probe.execute(TYPES)
        for number, name in enumerate(_TYPES):
            table = f"t{number}"
            probe.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a {name}[], v {name})")
            make = {**BINARY_MAKERS, **TEXT_MAKERS}[name]
            values = [make(rng) for _ in range(_ROWS)]
            probe.execute(
                f"INSERT INTO {table} SELECT n - 1, ARRAY[t.x::{name}], t.x::{name}"
                " FROM unnest(%s::text[]) WITH ORDINALITY t(x, n)",
                [values],
            )
            messages = encoder.encode(probe.scanned(table), topic=table).value.to_pylist()
            assert len(messages) == _ROWS, name
            for id_, message in enumerate(messages):
                element = message.decode().removeprefix('{"after": {"a": [').partition(f'], "id": {id_}, "v": ')[0]
                assert message.decode() == f'{{"after": {{"a": [{element}], "id": {id_}, "v": {element}}}}}', name
