"""Random values of every PostgreSQL type, as texts for its input function."""

from __future__ import annotations

import json
import random
import string
import uuid
from collections.abc import Callable

Maker = Callable[[random.Random], str]

_AWKWARD_TEXTS = [
    "", " ", "a  ", "NULL", "null", 'say "hi"', "back\\slash", "comma, {brace} (paren)", "tab\tline\nend\r",
    "\x01\x1f\x7f", "é ü 漢字 🎉 \u2028", "'quoted'", "-", "{}", "()", '""',
]  # fmt: skip


def one_of(*texts: str) -> Maker:
    return lambda rng: rng.choice(texts)


def array_of(make: Maker) -> Maker:
    """Make arrays of one or two dimensions, empty arrays, and arrays with nulls or with other lower bounds."""

    def quoted(rng: random.Random) -> str:
        if rng.random() < 0.2:
            return "NULL"
        return '"' + make(rng).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def make_array(rng: random.Random) -> str:
        width = rng.randint(1, 4)
        first, second = ("{" + ",".join(quoted(rng) for _ in range(width)) + "}" for _ in range(2))
        return rng.choice(["{}", first, second, f"{{{first},{second}}}", f"[0:{width - 1}]={first}"])

    return make_array


def _digits(rng: random.Random, most: int) -> str:
    return "".join(rng.choice("0001234567899") for _ in range(rng.randint(1, most)))


def _text(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(_AWKWARD_TEXTS)
    alphabet = string.printable + "éß漢🎉\"\\,{}()'"
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 20))).replace("\x00", "")


def _numeric(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(["NaN", "Infinity", "-Infinity", "0", "0.0000", "-0.00", "1e120", "1e-120", "10000", "1e8"])
    sign, whole = rng.choice(["", "-"]), _digits(rng, 30)
    return sign + whole + ("." + _digits(rng, 30) if rng.random() < 0.7 else "")


def _timestamp(rng: random.Random) -> str:
    if rng.random() < 0.2:
        special = ["infinity", "-infinity", "4713-01-01 00:00:00 BC", "0001-12-31 23:59:59.999999 BC",
                   "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "10000-01-01 00:00:00",
                   "294246-12-31 23:59:59.999999", "1969-12-31 23:59:59.5", "1970-01-01 00:00:00"]  # fmt: skip
        return rng.choice(special)
    day = f"{rng.randint(1, 3000):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    fraction = rng.choice(["", ".5", f".{rng.randint(0, 999999):06d}"])
    bc = rng.choice(["", "", " BC"])
    return f"{day} {rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}{fraction}{bc}"


def _date(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(["infinity", "-infinity", "5874897-12-31", "4713-01-01 BC", "0004-02-29"])
    era = rng.choice(["", "", " BC"])
    return f"{rng.randint(1, 4000 if era else 12000):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}{era}"


def _time(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(["24:00:00", "00:00:00", "23:59:59.999999"])
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}.{rng.randint(0, 999999)}"


def _float(rng: random.Random) -> str:
    special = ["NaN", "Infinity", "-Infinity", "-0", "0", "1e15", "1e16", "1e-5", "1e-7", "3.4e38", "1e-37", "0.1",
               "7.038531e-26"]  # fmt: skip
    return rng.choice(special) if rng.random() < 0.3 else repr(rng.uniform(-1, 1) * 10.0 ** rng.randint(-30, 30))


def _json(rng: random.Random) -> str:
    value = rng.choice([None, True, 1.5, "x", [1, None, "a\nb"], {"b": _text(rng), "a": {"é": []}}, {}, 10**30])
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))


TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'so, "happy"');
    CREATE DOMAIN positive AS numeric(20,0) CHECK (VALUE > 0);
    CREATE DOMAIN document AS jsonb;
    CREATE DOMAIN positives AS integer[];
    CREATE TYPE pair AS (number integer, "A text" text, flag boolean);
    CREATE TYPE nest AS (p pair, numbers integer[], at timestamptz);
    CREATE TYPE lone AS (only_one integer)
"""
"""Statements that create the user-defined types among them."""

BINARY_MAKERS: dict[str, Maker] = {
    "bool": one_of("t", "f"),
    "smallint": lambda r: str(r.randint(-(2**15), 2**15 - 1)),
    "integer": lambda r: str(r.randint(-(2**31), 2**31 - 1)),
    "bigint": lambda r: str(r.randint(-(2**63), 2**63 - 1)),
    "oid": lambda r: str(r.randint(0, 2**32 - 1)),
    "real": _float,
    "double precision": _float,
    "numeric": _numeric,
    "numeric(12,3)": lambda r: str(r.randint(-(10**8), 10**8) / 1000),
    "numeric(5,-2)": lambda r: str(r.randint(-(10**6), 10**6)),
    "text": _text,
    "varchar(30)": _text,
    "char(12)": lambda r: _text(r)[:12],
    "bpchar": _text,
    "name": lambda r: _text(r)[:10],
    "bytea": lambda r: "\\x" + r.randbytes(r.randint(0, 20)).hex(),
    "uuid": lambda r: str(uuid.UUID(bytes=r.randbytes(16))),
    "json": _json,
    "jsonb": _json,
    "date": _date,
    "time": _time,
    "time(2)": _time,
    "timestamp": _timestamp,
    "timestamp(0)": lambda r: _timestamp(r).replace("294246", "294245"),
    "timestamptz": _timestamp,
    "mood": one_of("sad", "ok", 'so, "happy"'),
    "positive": lambda r: _digits(r, 9) + "1",
    "document": _json,
}
"""By type: the types whose binary form is decoded."""
TEXT_MAKERS: dict[str, Maker] = {
    '"char"': one_of("a", "", '"', "\\"),
    "timetz": lambda r: _time(r) + r.choice(["+00", "-08", "+05:30"]),
    "interval": lambda r: f"{r.randint(-99, 99)} years {r.randint(-40, 40)} days {r.randint(-9, 9)}.5 seconds",
    "inet": one_of("192.168.0.1", "10.0.0.0/8", "::1", "2001:db8::/32", "192.168.0.1/24"),
    "cidr": one_of("192.168.0.0/24", "10.0.0.0/8", "1.2.3.4/32", "2001:db8::/32"),
    "macaddr": one_of("08:00:2b:01:02:03"),
    "macaddr8": one_of("08:00:2b:01:02:03:04:05"),
    "bit(3)": lambda r: f"{r.randint(0, 7):03b}",
    "varbit": lambda r: f"{r.randint(0, 99):b}",
    "money": lambda r: str(r.randint(-(10**9), 10**9) / 100),
    "tsvector": one_of("a fat cat sat"),
    "tsquery": one_of("fat & cat"),
    "pg_lsn": lambda r: f"{r.randint(0, 99):X}/{r.randint(0, 10**9):X}",
    "point": lambda r: f"({r.random()},{r.randint(0, 9)})",
    "box": lambda r: f"(({r.randint(0, 9)},1),(0,0))",
    "path": one_of("[(0,0),(1,1)]"),
    "int4range": one_of("empty", "[1,5)", "(,3]", "[7,)"),
    "numrange": one_of("[1.10,2.20)"),
    "tstzrange": one_of('["2020-01-01 00:00:00+00","2021-01-01 00:00:00+00")'),
    "int8multirange": one_of("{[1,3),[7,9)}"),
    "xid8": lambda r: str(r.randint(0, 10**12)),
    "regclass": one_of("pg_class", "pg_type"),
    "int2vector": one_of("1 2 3"),
    "jsonpath": one_of("$.a[*]"),
    "integer[]": array_of(lambda r: str(r.randint(-9, 9))),
    "bool[]": array_of(one_of("t", "f")),
    "text[]": array_of(_text),
    "numeric[]": array_of(_numeric),
    "double precision[]": array_of(_float),
    "real[]": array_of(_float),
    "bytea[]": array_of(lambda r: "\\x" + r.randbytes(3).hex()),
    "uuid[]": array_of(lambda r: str(uuid.UUID(bytes=r.randbytes(16)))),
    "date[]": array_of(_date),
    "time[]": array_of(_time),
    "timestamp[]": array_of(_timestamp),
    "timestamptz[]": array_of(_timestamp),
    "jsonb[]": array_of(_json),
    "json[]": array_of(_json),
    "oid[]": array_of(lambda r: str(r.randint(0, 99))),
    "inet[]": array_of(one_of("10.0.0.1")),
    "box[]": one_of("{(1,1),(0,0);(2,2),(0,0)}"),
    "int4range[]": array_of(one_of("[1,5)")),
    "mood[]": array_of(one_of("sad", 'so, "happy"')),
    "pair[]": array_of(one_of('(1,"a ""quoted"" \\\\ b",)')),
    "positives": array_of(lambda r: str(r.randint(1, 9))),
    "pair": one_of("(1,,)", '(,"",f)', '(5,"a ""b"", (c) \\\\ \\" d",t)', "(-3,plain,)"),
    "nest": one_of('("(1,""x, """"y"""""",t)","{1,NULL}","2020-01-01 00:00:00.5+00")'),
    "lone": one_of("()", "(1)"),
}
"""By type: all other types."""
