"""The query that reads types in the server's catalog."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.types import TypeCatalog, TypeInfo

__all__ = ["load_types"]

_TYPES = """
SELECT t.oid::bigint, format_type(t.oid, NULL), t.typtype::text, t.typbasetype::bigint, t.typtypmod,
       CASE WHEN t.typoutput = 'array_out'::regproc THEN t.typelem::bigint ELSE 0 END, t.typdelim::text,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
       (SELECT json_agg(json_build_array(a.attname, a.atttypid::bigint, a.atttypmod, a.attnum) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_type t WHERE t.oid = ANY(%s::oid[])
"""


def load_types(connection: Connection, oids: Iterable[int], known: TypeCatalog | None = None) -> TypeCatalog:
    """Return a catalog with the types *oids* and all types that they consist of. A dropped type is read as text."""
    types = dict(known.types) if known is not None else {}
    oids = list(oids)
    while missing := TypeCatalog(types).unknown(oids):
        for row in connection.execute(_TYPES, [list(missing)], prepare=True):
            oid, name, kind, base, typmod, element, delimiter, labels, fields = row
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
            )
        for oid in missing - types.keys():
            types[oid] = TypeInfo(oid=oid, name="unknown", typtype="b")
    return TypeCatalog(dict(sorted(types.items())))
