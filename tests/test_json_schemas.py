"""The JSON of PostgreSQL values matches the JSON Schema of their table."""

from __future__ import annotations

import json
import random

from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.json_schema import key_schema, value_schema
from cdc_encoder_json.options import JsonOptions
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES
from jsonschema import Draft7Validator

from cdc_core import EncoderContext, Envelope

_ROWS = 15
_MAKERS = {**BINARY_MAKERS, **TEXT_MAKERS}
_NO_ARRAY_OF_THEM = {"positives", "int2vector"}


def test_values_and_arrays_of_every_type_match_the_schema_in_each_envelope(database: str) -> None:
    envelopes = [Envelope(name=name, updated=True, key_in_value=True) for name in ("wrapped", "bare")]
    contexts = [EncoderContext(changefeed="c", envelope=each, options=JsonOptions()) for each in envelopes]
    encoders = [JsonEncoder(context) for context in contexts]
    rng = random.Random(7)
    found = 0
    with LogProbe(database) as probe:
        probe.execute(TYPES)
        for number, name in enumerate(_MAKERS):
            arrays = not name.endswith("[]") and name not in _NO_ARRAY_OF_THEM
            probe.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v {name}{f', a {name}[]' if arrays else ''})")
            cells = f"t.x::{name}, ARRAY[ARRAY[t.x, NULL], ARRAY[NULL, t.x]]::{name}[]" if arrays else f"t.x::{name}"
            probe.execute(
                f"INSERT INTO t{number} SELECT n, {cells} FROM unnest(%s::text[]) WITH ORDINALITY t(x, n)",
                [[_MAKERS[name](rng) for _ in range(_ROWS)]],
            )
            probe.execute(f"INSERT INTO t{number} (id) VALUES (0)")
            rows = probe.scanned(f"t{number}")
            for envelope, encoder in zip(envelopes, encoders, strict=True):
                keys = Draft7Validator(json.loads(key_schema(rows.schema, envelope)))
                values = Draft7Validator(json.loads(value_schema(rows.schema, envelope) or ""))
                batch = encoder.encode(rows, topic="t")
                for key, value in zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True):
                    keys.validate(json.loads(key))
                    values.validate(json.loads(value))
                    found += 1
    assert found == 2 * len(_MAKERS) * (_ROWS + 1)
