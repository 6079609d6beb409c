from __future__ import annotations

import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.nested import UnknownAttributesError, json_texts, to_json
from cdc_rangefeed_postgres.types import TypeCatalog, TypeInfo

_PAIR = TypeInfo(oid=90_001, name="pair", typtype="c", fields=(("z", 23, -1), ("A b", 25, -1), ("m", 1700, -1)))
_PAIRS = TypeInfo(oid=90_002, name="pair[]", typtype="b", element=90_001)
_INTS = TypeInfo(oid=90_003, name="ints", typtype="d", base=1007)
_OUTER = TypeInfo(oid=90_004, name="outer", typtype="c", fields=(("list", 90_003, -1), ("pair", 90_001, -1)))
_NONE = TypeInfo(oid=90_005, name="nothing", typtype="c")
_CATALOG = TypeCatalog({info.oid: info for info in (_PAIR, _PAIRS, _INTS, _OUTER, _NONE)})
_BOOL, _BYTES, _INT, _TEXT, _OID, _JSON, _BOX, _REAL, _DOUBLE, _DATE, _STAMP, _ZONED, _NUMERIC = (
    1000, 1001, 1007, 1009, 1028, 199, 1020, 1021, 1022, 1182, 1115, 1185, 1231,
)  # fmt: skip


@pytest.mark.parametrize(
    ("oid", "text", "expected"),
    [
        (_INT, "{}", "[]"),
        (_INT, "{1,-2,NULL}", "[1, -2, null]"),
        (_INT, "{{1,2},{3,NULL}}", "[[1, 2], [3, null]]"),
        (_INT, "[0:1]={1,2}", "[1, 2]"),
        (_INT, "[-1:0][2:3]={{1,2},{3,4}}", "[[1, 2], [3, 4]]"),
        (_BOOL, "{t,f,NULL}", "[true, false, null]"),
        (_TEXT, "{a,NULL}", '["a", null]'),
        (_TEXT, '{"NULL","null","","a,b","{x}"}', '["NULL", "null", "", "a,b", "{x}"]'),
        (_TEXT, r'{"say \"hi\"","back\\slash"}', r'["say \"hi\"", "back\\slash"]'),
        (_TEXT, '{"line\nend\ttab\r\x01"}', r'["line\nend\ttab\r\u0001"]'),
        (_TEXT, "{é漢🎉}", '["é漢🎉"]'),
        (_TEXT, "[3:4]={a,b}", '["a", "b"]'),
        (_OID, "{26}", '["26"]'),
        (_BYTES, r'{"\\x00ff"}', r'["\\x00ff"]'),
        (_JSON, '{"{\\"a\\":\n [1, null]}",null}', '[{"a":  [1, null]}, null]'),
        (_BOX, "{(1,1),(0,0);(2,2),(0,0)}", '["(1,1),(0,0)", "(2,2),(0,0)"]'),
        (
            _REAL,
            "{0.1,NaN,Infinity,-Infinity,1,7.038531e-26}",
            '[0.1, "NaN", "Infinity", "-Infinity", 1, 7.038531e-26]',
        ),
        (
            _DOUBLE,
            "{1e+15,1e+20,1e+21,1e-06,1e-07,-0}",
            "[1000000000000000, 100000000000000000000, 1e+21, 0.000001, 1e-7, -0]",
        ),
        (_NUMERIC, "{1.10,NaN,-Infinity,0.00}", '[1.10, "NaN", "-Infinity", 0.00]'),
        (_DATE, '{2020-01-31,infinity,"0044-03-15 BC"}', '["2020-01-31", "infinity", "-0043-03-15"]'),
        (_STAMP, '{"2020-01-31 01:02:03.5",-infinity}', '["2020-01-31T01:02:03.5", "-infinity"]'),
        (
            _ZONED,
            '{"2020-01-31 01:02:03+00","0001-02-03 04:05:06+00 BC"}',
            '["2020-01-31T01:02:03Z", "0000-02-03T04:05:06Z"]',
        ),
    ],
)
def test_an_array_is_json_with_elements_as_the_encoder_writes_them(oid: int, text: str, expected: str) -> None:
    assert json_texts(pa.array([text, None, text]), oid, TypeCatalog()).to_pylist() == [expected, None, expected]


@pytest.mark.parametrize(
    ("oid", "text", "expected"),
    [
        (_PAIR.oid, "(1,abc,2.50)", '{"A b": "abc", "m": 2.50, "z": 1}'),
        (_PAIR.oid, "(,,)", '{"A b": null, "m": null, "z": null}'),
        (_PAIR.oid, '(,"",NaN)', '{"A b": "", "m": "NaN", "z": null}'),
        (_PAIR.oid, r'(7,"a ""q"", (c) \\ d",)', r'{"A b": "a \"q\", (c) \\ d", "m": null, "z": 7}'),
        (_NONE.oid, "()", "{}"),
        (_PAIRS.oid, r'{"(1,\"a b\",)",NULL}', '[{"A b": "a b", "m": null, "z": 1}, null]'),
        (
            _OUTER.oid,
            '("{1,NULL}","(1,""x, """"y"""""",)")',
            r'{"list": [1, null], "pair": {"A b": "x, \"y\"", "m": null, "z": 1}}',
        ),
        (_INTS.oid, "{1,2}", "[1, 2]"),
    ],
)
def test_a_composite_is_an_object_with_sorted_fields(oid: int, text: str, expected: str) -> None:
    assert json_texts(pa.array([text]), oid, _CATALOG).to_pylist() == [expected]


def test_a_row_from_before_an_attribute_was_dropped_or_added_has_the_others() -> None:
    now = TypeInfo(oid=1, name="now", typtype="c", fields=(("b", 23, -1), ("c", 23, -1)), numbers=(2, 3))
    assert to_json(1, TypeCatalog({1: now}))("(5,6,7)") == '{"b": 6, "c": 7}'
    with pytest.raises(UnknownAttributesError):
        to_json(1, TypeCatalog({1: now}))("(5)")
