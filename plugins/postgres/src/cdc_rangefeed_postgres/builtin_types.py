"""The built-in types of PostgreSQL 14 to 18: oids, names, kinds, and the text of their modifiers."""

from __future__ import annotations

from cdc_core import Kind

_TABLE: tuple[tuple[int, str, int, Kind, int | None], ...] = (
    # oid, name from format_type, oid of the array type, kind, bits
    (16, "boolean", 1000, Kind.BOOL, None),
    (17, "bytea", 1001, Kind.BYTES, None),
    (18, '"char"', 1002, Kind.STRING, None),
    (19, "name", 1003, Kind.STRING, None),
    (20, "bigint", 1016, Kind.INT, 64),
    (21, "smallint", 1005, Kind.INT, 16),
    (22, "int2vector", 1006, Kind.STRING, None),
    (23, "integer", 1007, Kind.INT, 32),
    (24, "regproc", 1008, Kind.STRING, None),
    (25, "text", 1009, Kind.STRING, None),
    (26, "oid", 1028, Kind.STRING, None),
    (27, "tid", 1010, Kind.STRING, None),
    (28, "xid", 1011, Kind.STRING, None),
    (29, "cid", 1012, Kind.STRING, None),
    (30, "oidvector", 1013, Kind.STRING, None),
    (114, "json", 199, Kind.JSON, None),
    (142, "xml", 143, Kind.STRING, None),
    (600, "point", 1017, Kind.STRING, None),
    (601, "lseg", 1018, Kind.STRING, None),
    (602, "path", 1019, Kind.STRING, None),
    (603, "box", 1020, Kind.STRING, None),
    (604, "polygon", 1027, Kind.STRING, None),
    (628, "line", 629, Kind.STRING, None),
    (650, "cidr", 651, Kind.STRING, None),
    (700, "real", 1021, Kind.FLOAT, 32),
    (701, "double precision", 1022, Kind.FLOAT, 64),
    (718, "circle", 719, Kind.STRING, None),
    (774, "macaddr8", 775, Kind.STRING, None),
    (790, "money", 791, Kind.STRING, None),
    (829, "macaddr", 1040, Kind.STRING, None),
    (869, "inet", 1041, Kind.STRING, None),
    (1033, "aclitem", 1034, Kind.STRING, None),
    (1042, "character", 1014, Kind.STRING, None),
    (1043, "character varying", 1015, Kind.STRING, None),
    (1082, "date", 1182, Kind.DATE, None),
    (1083, "time without time zone", 1183, Kind.TIME, None),
    (1114, "timestamp without time zone", 1115, Kind.TIMESTAMP, None),
    (1184, "timestamp with time zone", 1185, Kind.TIMESTAMPTZ, None),
    (1186, "interval", 1187, Kind.INTERVAL, None),
    (1266, "time with time zone", 1270, Kind.TIMETZ, None),
    (1560, "bit", 1561, Kind.STRING, None),
    (1562, "bit varying", 1563, Kind.STRING, None),
    (1700, "numeric", 1231, Kind.DECIMAL, None),
    (1790, "refcursor", 2201, Kind.STRING, None),
    (2202, "regprocedure", 2207, Kind.STRING, None),
    (2203, "regoper", 2208, Kind.STRING, None),
    (2204, "regoperator", 2209, Kind.STRING, None),
    (2205, "regclass", 2210, Kind.STRING, None),
    (2206, "regtype", 2211, Kind.STRING, None),
    (2950, "uuid", 2951, Kind.UUID, None),
    (2970, "txid_snapshot", 2949, Kind.STRING, None),
    (3220, "pg_lsn", 3221, Kind.STRING, None),
    (3614, "tsvector", 3643, Kind.STRING, None),
    (3615, "tsquery", 3645, Kind.STRING, None),
    (3734, "regconfig", 3735, Kind.STRING, None),
    (3769, "regdictionary", 3770, Kind.STRING, None),
    (3802, "jsonb", 3807, Kind.JSON, None),
    (3904, "int4range", 3905, Kind.STRING, None),
    (3906, "numrange", 3907, Kind.STRING, None),
    (3908, "tsrange", 3909, Kind.STRING, None),
    (3910, "tstzrange", 3911, Kind.STRING, None),
    (3912, "daterange", 3913, Kind.STRING, None),
    (3926, "int8range", 3927, Kind.STRING, None),
    (4072, "jsonpath", 4073, Kind.STRING, None),
    (4089, "regnamespace", 4090, Kind.STRING, None),
    (4096, "regrole", 4097, Kind.STRING, None),
    (4191, "regcollation", 4192, Kind.STRING, None),
    (4451, "int4multirange", 6150, Kind.STRING, None),
    (4532, "nummultirange", 6151, Kind.STRING, None),
    (4533, "tsmultirange", 6152, Kind.STRING, None),
    (4534, "tstzmultirange", 6153, Kind.STRING, None),
    (4535, "datemultirange", 6155, Kind.STRING, None),
    (4536, "int8multirange", 6157, Kind.STRING, None),
    (5038, "pg_snapshot", 5039, Kind.STRING, None),
    (5069, "xid8", 271, Kind.STRING, None),
)

BUILTIN: dict[int, tuple[str, Kind, int | None]] = {oid: (name, kind, bits) for oid, name, _, kind, bits in _TABLE}
"""Name, kind and bits by oid, without arrays."""

BUILTIN_ARRAYS: dict[int, int] = {array: oid for oid, _, array, _, _ in _TABLE}
"""Oid of the element type by the oid of the array type."""

_NUMERIC, _INTERVAL = 1700, 1186
_LENGTH = {1042: "character", 1043: "character varying"}
_BITS = {1560: "bit", 1562: "bit varying"}
_TIME = {1083, 1114, 1184, 1266}
# Bits of an interval's range: YEAR 2, MONTH 1, DAY 3, HOUR 10, MINUTE 11, SECOND 12 (the server's utils/datetime.h).
_INTERVAL_RANGES = {
    1 << 2: "year",
    1 << 1: "month",
    1 << 3: "day",
    1 << 10: "hour",
    1 << 11: "minute",
    1 << 12: "second",
    1 << 2 | 1 << 1: "year to month",
    1 << 3 | 1 << 10: "day to hour",
    1 << 3 | 1 << 10 | 1 << 11: "day to minute",
    1 << 3 | 1 << 10 | 1 << 11 | 1 << 12: "day to second",
    1 << 10 | 1 << 11: "hour to minute",
    1 << 10 | 1 << 11 | 1 << 12: "hour to second",
    1 << 11 | 1 << 12: "minute to second",
}


def with_modifier(oid: int, name: str, typmod: int) -> str:
    """Return *name* with the modifiers of a built-in type, as `format_type` does: `timestamp(3) with time zone`."""
    if typmod < 0:
        return "bpchar" if oid == 1042 else name
    if oid == _NUMERIC and typmod >= 4:
        precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4 & 0x7FF) ^ 0x400) - 0x400
        return f"numeric({precision},{scale})"
    if oid in _LENGTH and typmod >= 4:
        return f"{name}({typmod - 4})"
    if oid in _BITS:
        return f"{name}({typmod})"
    if oid in _TIME:
        base, _, zone = name.partition(" ")
        return f"{base}({typmod}) {zone}"
    if oid == _INTERVAL:
        range_, precision = typmod >> 16 & 0x7FFF, typmod & 0xFFFF
        fields = _INTERVAL_RANGES.get(range_)
        return name + (f" {fields}" if fields else "") + (f"({precision})" if precision != 0xFFFF else "")
    return name
