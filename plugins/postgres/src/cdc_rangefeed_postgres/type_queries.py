"""The query that reads types in the server's catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.types import GONE, TypeCatalog, TypeInfo

__all__ = ["load_types"]

_TYPES = """
SELECT t.oid::bigint, format_type(t.oid, NULL), t.typtype::text, t.typbasetype::bigint, t.typtypmod,
       CASE WHEN t.typoutput = 'array_out'::regproc THEN t.typelem::bigint ELSE 0 END, t.typdelim::text,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
       (SELECT json_agg(json_build_array(a.attname, a.atttypid::bigint, a.atttypmod, a.attnum) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT c.relnatts FROM pg_class c WHERE c.oid = t.typrelid)
FROM pg_type t WHERE t.oid = ANY(%s::oid[])
"""
_BUILT_IN = """
SELECT t.oid::bigint, format_type(t.oid, NULL) FROM pg_type t
WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typname::text = %s
"""


def load_types(
    connection: Connection,
    oids: Iterable[int],
    known: TypeCatalog | None = None,
    past: Mapping[int, TypeInfo] = MappingProxyType({}),
    announced: Mapping[int, str] = MappingProxyType({}),
) -> TypeCatalog:
    """Return a catalog with the types *oids* and all types that they consist of.

    *past* has types as the oldest rows have them: those that were dropped since, and attributes that were. *announced*:
    see `Relation.types`.
    """
    types = dict(known.types) if known is not None else {}
    oids = list(oids)
    while missing := TypeCatalog(types).unknown(oids):
        for row in connection.execute(_TYPES, [list(missing)], prepare=True):
            oid, name, kind, base, typmod, element, delimiter, labels, fields, attributes = row
            types[oid] = TypeInfo(
                oid=oid,
                name=name,
                typtype=kind,
                base=base,
                typmod=typmod,
                element=element,
                delimiter=delimiter,
                labels=tuple(labels),
                fields=tuple((field[0], field[1], field[2]) for field in fields or ()),
                numbers=tuple(field[3] for field in fields or ()),
                attributes=attributes or 0,
            )
        for oid in missing - types.keys():
            types[oid] = past.get(oid) or _announced(connection, oid, announced.get(oid, f"with oid {oid}"))
    return TypeCatalog(dict(sorted(types.items()))).following(past, mixed=True)


def _announced(connection: Connection, oid: int, name: str) -> TypeInfo:
    """Return a type that was dropped and is not known: by its *name*, a domain over a type of PostgreSQL, or `GONE`."""
    schema, _, type_ = name.partition(".")
    row: Any = connection.execute(_BUILT_IN, [type_]).fetchone() if schema == "pg_catalog" else None
    if row is None:
        return TypeInfo(oid=oid, name=name, typtype=GONE)
    return TypeInfo(oid=oid, name=row[1], typtype="d", base=row[0])
