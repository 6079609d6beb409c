"""What the catalog says of the row filters of a publication, and of the columns in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc_rangefeed_postgres.catalog import Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.filtered import Filtered
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.value_types import code_of

__all__ = ["Attribute", "attributes_of", "filtered_by", "filters_in"]

# The text of an expression, as by pg_get_expr, waits for a lock on its table; its tree does not. A filter that is
# altered and set again as it was has another row in pg_publication_rel.
_FOUND = """
SELECT r.prrelid::bigint, coalesce(r.oid || ':' || hashtextextended(to_jsonb(r) ->> 'prqual', 0), '')
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND r.prrelid = ANY(%s::oid[])
"""
_ATTRIBUTES = """
SELECT attrelid::bigint, attnum, attname::text, atttypid::bigint, attcollation::bigint, attisdropped, xmin::text
FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 ORDER BY attrelid, attnum
"""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A row of pg_attribute."""

    number: int
    name: str
    type: int
    collation: int
    dropped: bool
    writer: str


def filtered_by(
    where: tuple[str, ...], columns: tuple[str, ...], found: tuple[str, ...], attributes: Sequence[Attribute]
) -> Filtered:
    """Return a filter as a token has it, with the present *attributes* of its table."""
    mine = [attribute for attribute in attributes if attribute.name in columns]
    others = [attribute for attribute in attributes if attribute.name not in columns]
    return Filtered(
        where=where,
        columns=columns,
        found=found,
        shape=_code((attribute.number, attribute.name, attribute.type) for attribute in mine),
        writers=tuple(code_of(attribute.writer) for attribute in mine),
        others=_code((attribute.number, attribute.writer) for attribute in others),
    )


def attributes_of(connection: Connection, tables: Iterable[Table]) -> dict[int, list[Attribute]]:
    """Return the attributes of each of *tables* by number, dropped ones included."""
    found: dict[int, list[Attribute]] = {table.oid: [] for table in tables}
    for oid, *attribute in connection.execute(_ATTRIBUTES, [list(found)]):
        found[oid].append(Attribute(*attribute))
    return found


def filters_in(connection: Connection, publication: Publication, tables: Iterable[Table]) -> dict[int, str]:
    """Return a code for the filter of each of *tables* that is in the publication by itself."""
    return dict(connection.execute(_FOUND, [publication.name, [table.oid for table in tables]]).fetchall())


def _code(parts: Iterable[tuple[object, ...]]) -> str:
    return code_of(repr(list(parts)))
