"""Comparisons of keys in SQL, by their identity: the text form, which is what a consumer sees of a value.

`=` alone takes values for one key that are written in different ways: numeric 1.0 and 1.000, float 0 and -0, citext 'A'
and 'a'. It finds rows by the index of the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql

Operators = Mapping[str, str]
"""By column of a key: the operator of SQL for equality in the key's index, see `key_operators`."""

# 403 is btree, and 3 the strategy number of its equality. The operator can be in any schema, and have any name. That of
# enums (anyenum is 3500) does not take domains over them.
_OPERATORS = """
SELECT a.attname::text, format('OPERATOR(%I.%s)', n.nspname, o.oprname)
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indclass::oid[]) AS k(attnum, class)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_opclass c ON c.oid = k.class AND c.opcmethod = 403
JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
              AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
WHERE i.indrelid = to_regclass({table}) AND (i.indisprimary OR i.indisreplident)
  AND has_schema_privilege(n.oid, 'USAGE') AND NOT (t.typtype = 'd' AND c.opcintype = 3500)
"""


def key_operators(cursor: Any, table: str) -> Operators:
    """Return the operators for the key columns of *table*, a name in SQL, that the role can use.

    A column without one, such as after its index was dropped, is compared by text alone. *cursor* is one of ADBC.
    """
    cursor.execute(_OPERATORS.format(table=sql.Literal(table).as_string(None)))
    return dict(cursor.fetchall())


def same_key(column: str, left: str, right: str, operators: Operators) -> str:
    """Return the condition in SQL that *left* and *right* are one value of the key column *column*."""
    texts = f"""format('%s', {left}) COLLATE "C" = format('%s', {right})"""
    operator = operators.get(column)
    return texts if operator is None else f"{left} {operator} {right} AND {texts}"
