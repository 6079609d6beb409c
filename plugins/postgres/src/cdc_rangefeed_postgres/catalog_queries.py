"""The queries that read tables in the server's catalog, and find out cheaply whether anything has changed there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cdc_core import TableName
from cdc_rangefeed_postgres.catalog import Catalog, CatalogColumn, Leaf, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.value_types import composites_of

# Neither these queries nor the functions in them wait for a lock: a step must not wait for an ALTER TABLE. So they use
# pg_inherits instead of pg_partition_tree, and pg_publication_rel instead of pg_publication_tables.
_TABLES = """
SELECT current_database()::text, c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text,
       c.relpersistence::text, c.relreplident::text,
       CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::bigint END,
       -- pg_depend has the transaction that put the table into its schema, pg_shdepend the one that set the owner.
       (SELECT json_build_array(
            concat(p.oid, ' ', p.xmin),
            concat(p.pubowner, ' ', to_jsonb(p) ->> 'pubgencols', ' ', (
                SELECT o.xmin FROM pg_shdepend o JOIN pg_database d ON d.oid = o.dbid
                WHERE d.datname = current_database() AND o.classid = 'pg_publication'::regclass AND o.objid = p.oid
                  AND o.deptype = 'o')),
            CASE WHEN p.puballtables THEN 'all' END,
            (SELECT concat(r.oid, ' ', r.xmin) FROM pg_publication_rel r
             WHERE r.prpubid = p.oid AND r.prrelid = c.oid){schemas})
        FROM pg_publication p WHERE p.pubname = %(publication)s),
       coalesce((SELECT to_jsonb(p) ->> 'pubgencols' = 's' FROM pg_publication p WHERE p.pubname = %(publication)s),
                current_setting('server_version_num')::int >= 180000),
       (SELECT json_agg(json_build_array(a.attname, a.atttypid::bigint, a.atttypmod, a.attnotnull, a.attgenerated)
                        ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       -- REINDEX CONCURRENTLY creates another index, for the same constraint.
       (SELECT json_agg(json_build_array(i.indisprimary, i.indisreplident, i.indimmediate,
                        (SELECT json_agg(a.attname ORDER BY k.n)
                         FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
                         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                         WHERE k.n <= i.indnkeyatts),
                        coalesce((SELECT o.oid FROM pg_constraint o
                                  WHERE o.conindid = i.indexrelid AND o.contype IN ('p', 'u')), i.indexrelid)::bigint)
                        ORDER BY i.indexrelid)
        FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND (i.indisprimary OR i.indisreplident)),
       CASE WHEN c.relkind = 'p' THEN
         (WITH RECURSIVE tree AS (
              SELECT c.oid AS relid, '' AS joined
              UNION ALL SELECT h.inhrelid, concat(t.joined, ' ', h.xmin)
              FROM tree t JOIN pg_inherits h ON h.inhparent = t.relid WHERE NOT h.inhdetachpending)
          SELECT json_agg(json_build_array(l.oid::bigint, ln.nspname, l.relname, l.relkind, l.relpersistence,
                                           l.relreplident, t.joined) ORDER BY l.oid)
          FROM tree t JOIN pg_class l ON l.oid = t.relid
          JOIN pg_namespace ln ON ln.oid = l.relnamespace WHERE l.relkind <> 'p') END,
       (WITH RECURSIVE used AS (
            SELECT a.atttypid AS type FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
            UNION SELECT part.type FROM used u JOIN pg_type t ON t.oid = u.type CROSS JOIN LATERAL (
                SELECT t.typbasetype UNION ALL SELECT t.typelem
                UNION ALL SELECT a.atttypid FROM pg_attribute a
                          WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS part(type)
            WHERE part.type >= 16384)
        SELECT json_agg(json_build_array(m.owner::bigint, m.name) ORDER BY m.owner, m.place) FROM (
            SELECT e.enumtypid, e.enumlabel, e.enumsortorder FROM pg_enum e
            WHERE e.enumtypid IN (SELECT a.atttypid FROM pg_attribute a
                                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
            UNION ALL
            SELECT a.attrelid, a.attname, a.attnum FROM used u JOIN pg_type t ON t.oid = u.type
            JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0) AS m(owner, name, place)),
       -- What was altered and altered back looks as before, but rows in between had another shape or key.
       (SELECT json_agg(a.xmin::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
       c.xmin::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%(oids)s::oid[]) ORDER BY n.nspname, c.relname
"""
_SCHEMAS = """,
            (SELECT concat(s.oid, ' ', s.xmin, ' ', d.xmin) FROM pg_publication_namespace s, pg_depend d
             WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
               AND d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
               AND d.refclassid = 'pg_namespace'::regclass AND d.refobjid = c.relnamespace)"""
_SCHEMAS_SINCE = 150000

# Every command that changes what `_TABLES` reads rewrites a row of one of these catalogs. VACUUM and ANALYZE do not.
# What is written has a transaction that no row had before, and what is deleted is missing: so the transactions alone,
# in an order that stays, tell everything. Hashing them as arrays takes half the time of texts.
_STAMP = """
WITH RECURSIVE watched AS (
    SELECT oid FROM unnest(%(oids)s::oid[]) AS t(oid)
    UNION ALL SELECT h.inhrelid FROM watched w JOIN pg_inherits h ON h.inhparent = w.oid)
SELECT concat_ws('|',
    (SELECT hash_array_extended(array_agg(c.xmin ORDER BY c.oid) || array_agg(n.xmin ORDER BY c.oid), 0)
     FROM watched w JOIN pg_class c ON c.oid = w.oid JOIN pg_namespace n ON n.oid = c.relnamespace),
    hash_array_extended(ARRAY(SELECT a.xmin FROM pg_attribute a
                              WHERE a.attrelid = ANY(%(oids)s::oid[]) AND a.attnum > 0
                              ORDER BY a.attrelid, a.attnum), 0),
    hash_array_extended(ARRAY(SELECT i.xmin FROM pg_index i
                              WHERE i.indrelid = ANY(%(oids)s::oid[]) ORDER BY i.indexrelid), 0),
    hash_array_extended(ARRAY(SELECT h.xmin FROM pg_inherits h
                              WHERE h.inhrelid IN (SELECT w.oid FROM watched w)
                              ORDER BY h.inhrelid, h.inhparent), 0),
    (SELECT concat(p.oid, ' ', p.xmin, ' ', {schemas}, ' ', hash_array_extended(ARRAY(
            SELECT r.xmin FROM pg_publication_rel r WHERE r.prpubid = p.oid ORDER BY r.oid), 0))
     FROM pg_publication p WHERE p.pubname = %(publication)s),
    hash_array_extended(ARRAY(SELECT e.xmin FROM pg_enum e ORDER BY e.oid), 0),
    hash_array_extended(ARRAY(SELECT a.xmin FROM pg_attribute a
                              WHERE a.attrelid = ANY(%(composites)s::oid[]) AND a.attnum > 0
                              ORDER BY a.attrelid, a.attnum), 0))
"""
_SCHEMAS_STAMP = """hash_array_extended(ARRAY(
            SELECT s.xmin FROM pg_publication_namespace s WHERE s.pnpubid = p.oid ORDER BY s.oid), 0)"""


def load_tables(connection: Connection, *, publication: str, oids: Iterable[int], nulls: bool = False) -> Catalog:
    """Return the tables *oids* that exist. *nulls*: see `Table`."""
    query = _TABLES.format(schemas=_SCHEMAS if _has_schemas(connection) else "")
    rows = connection.execute(query, {"publication": publication, "oids": list(oids)}).fetchall()
    fingerprint = hashlib.md5(json.dumps(rows).encode(), usedforsecurity=False).hexdigest()[:16]
    tables = [_table(row, nulls=nulls) for row in rows]
    return Catalog({table.name.qualified: table for table in tables}, fingerprint)


def load_again(
    connection: Connection, known: Catalog | None, *, publication: str, oids: Sequence[int], nulls: bool
) -> Catalog:
    """Return the tables *oids* that exist: *known* if nothing has changed since, which takes a tenth of the time."""
    query = _STAMP.format(schemas=_SCHEMAS_STAMP if _has_schemas(connection) else "''")
    composites = known.composites if known is not None else ()
    values = {"publication": publication, "oids": array_text(oids), "composites": array_text(composites)}
    row: Any = connection.execute(query, values, prepare=True).fetchone()
    if known is not None and known.stamp == row[0]:
        return known
    # The stamp is older than what is read after it, so no change is missed the next time.
    catalog = load_tables(connection, publication=publication, oids=oids, nulls=nulls)
    return replace(catalog, stamp=row[0], composites=composites_of(connection, oids))


def array_text(oids: Iterable[int]) -> str:
    """Return *oids* as the text of an array: psycopg takes a millisecond to make one of some hundred numbers."""
    return f"{{{','.join(map(str, oids))}}}"


def _has_schemas(connection: Connection) -> bool:
    """Return whether a publication of this server can be of schemas."""
    return connection.info.server_version >= _SCHEMAS_SINCE


def _table(row: Sequence[Any], *, nulls: bool) -> Table:
    """Return the table in a *row* of `_TABLES`, whose last columns are only compared."""
    database, oid, schema, name, kind, persistence, identity, *more = row
    root, publishing, stored_columns, columns, indexes, leaves, *_compared = more
    facts = tuple(fact for fact in publishing or () if fact is not None)
    return Table(
        oid=oid,
        name=TableName(database, schema, name),
        kind=kind,
        persistence=persistence,
        identity=identity,
        root=root,
        published=len(facts) > 2,  # there is an entry
        publishing=facts,
        stored_columns=stored_columns,
        all_columns=tuple(CatalogColumn(*column) for column in columns or ()),
        indexes=tuple(
            (primary, ident, now, tuple(names or ()), id_) for primary, ident, now, names, id_ in indexes or ()
        ),
        partitions=tuple(Leaf(*leaf) for leaf in leaves or ()),
        nulls=nulls,
    )
