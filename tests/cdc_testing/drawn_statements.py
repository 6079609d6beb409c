"""Statements that are drawn from what a database has at the moment: its tables, columns, types and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from cdc_testing.postgres import Sql

VALUES: dict[str, tuple[str, ...]] = {
    "smallint": ("1", "2", "-3"),
    "integer": tuple(map(str, range(12))),
    "bigint": (*map(str, range(20)), "9007199254740993", "-9223372036854775808"),
    "numeric": ("1", "1.0", "1.000", "2", "NaN", "-0.5", "1234567.25"),
    "text": ("", "a", "A", "é", 'say "hi"\\', "null", "{1,2}", "line\nend"),
    "character varying": ("a", "a ", "B", ""),
    "character": ("a", "b", "A"),
    "boolean": ("true", "false"),
    "double precision": ("0", "-0", "1.5", "1e300", "NaN", "-Infinity", "0.1"),
    "real": ("0", "-0", "0.1", "3.4e38", "NaN"),
    "date": ("2026-01-31", "0001-01-01", "infinity", "-infinity"),
    "timestamp without time zone": ("2026-01-31 12:00:00.000001", "infinity", "1969-12-31 23:59:59.999999"),
    "timestamp with time zone": ("2026-01-31 12:00:00.5+02", "-infinity", "2026-01-31 12:00:00+00"),
    "time without time zone": ("00:00", "23:59:59.999999"),
    "interval": ("1 day", "24:00:00", "-1 mon 02:00:00.5"),
    "uuid": ("00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000002"),
    "bytea": (r"\x", r"\x00ff", r"\x22"),
    "jsonb": ('{"a": [1, 2.50, null], "é": "x"}', "{}", '{"b": {"c": "1"}}'),
    "int4range": ("empty", "[1,5)", "(,3)"),
    "numrange": ("[1.0,2)", "[1.00,2)", "(,)"),
    "inet": ("10.0.0.1", "10.0.0.1/8"),
    "citext": ("a", "A", "b"),
    "ltree": ("a.b", "a", "B.c"),
    "hstore": ('"a"=>"1"', '"a"=>NULL'),
}
"""By the name of a type without modifier. They fit the modifiers of `BUILT_IN`."""
BUILT_IN = (*VALUES, "numeric(9,2)", "varchar(9)", "char(3)", "timestamptz(3)")
LABELS = ("low", "mid", "high", "a b", "Ä", "x", "y")
KEYS = ("integer", "bigint", "integer", "numeric", "text", "citext", "ltree", "uuid", "double precision", "date",
        "bytea", "char(3)", "timestamptz", "numrange", "numeric(9,2)", "jsonb", "inet", "interval",
        "boolean")  # fmt: skip

_TYPES = """
SELECT t.oid, format_type(t.oid, NULL), t.typtype::text, t.typbasetype, format_type(t.typbasetype, t.typtypmod),
 CASE t.typcategory WHEN 'A' THEN t.typelem ELSE 0 END, format_type(t.typelem, NULL),
 ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder),
 ARRAY(SELECT ARRAY[attname, atttypid::text, format_type(atttypid, atttypmod)] FROM pg_attribute
  WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE t.typnamespace = 'public'::regnamespace AND (c.oid IS NULL OR c.relkind = 'c')
 OR t.typcategory = 'A' AND t.typnamespace = 'pg_catalog'::regnamespace
"""
_TABLES = """
SELECT c.oid, c.relname,
 ARRAY(SELECT ARRAY[attname, atttypid::text, format_type(atttypid, atttypmod)] FROM pg_attribute
  WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum),
 ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(n, o), pg_attribute a
  WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.n ORDER BY k.o),
 c.relreplident <> 'f' AND EXISTS (SELECT FROM pg_class x LEFT JOIN pg_inherits ON inhrelid = x.oid, pg_attribute
  WHERE c.oid IN (x.oid, inhparent) AND attrelid = x.oid
  AND (attstorage = 'e' OR pg_relation_size(x.reltoastrelid) > 0)),
 CASE c.relkind WHEN 'p' THEN ARRAY(
  SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = c.oid ORDER BY 1) END
FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Type:
    """A type and what it is made of: the type below a domain, items of an array, labels, attributes."""

    oid: int
    name: str
    kind: str
    base: int
    base_name: str
    item: int
    item_name: str
    labels: list[str]
    attributes: list[tuple[str, int, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. *large*: of values in it the log has not those that an update leaves. *partitions*: if it has such."""

    oid: int
    name: str
    columns: list[tuple[str, int, str]]
    key: list[str]
    large: bool
    partitions: list[str] | None

    @property
    def others(self) -> list[str]:
        return [name for name, *_ in self.columns if name not in self.key]


@dataclass(frozen=True, slots=True)
class Statement:
    """What is executed. *ends*: an error that it may cause; *drops*, *makes*: a type that it takes from or adds to."""

    text: str
    ends: str = ""
    drops: str = ""
    makes: str = ""


class Catalog:
    """What *sql* sees in schema `public`, also of its own open transaction."""

    def __init__(self, sql: Sql) -> None:
        def typed(rows: Any) -> list[tuple[str, int, str]]:
            return [(name, int(oid), full) for name, oid, full in rows]

        self.types = {row[0]: Type(*(*row[:8], typed(row[8]))) for row in sql.execute(_TYPES)}
        self.tables = {row[0]: Table(*(*row[:2], typed(row[2]), *row[3:])) for row in sql.execute(_TABLES)}
        self.own = [type_ for type_ in self.types.values() if type_.kind in "dec"]

    def form(self, oid: int, name: str) -> Any:
        """Return what decides about the texts of a type's values."""
        type_ = self.types.get(oid)
        if type_ is None or (type_.kind == "b" and not type_.item):
            return name
        if type_.base:
            return self.form(type_.base, type_.base_name)
        if type_.item:
            return [self.form(type_.item, type_.item_name)]
        return type_.labels, [(attribute, self.form(of, full)) for attribute, of, full in type_.attributes]

    def key_form(self, table: Table) -> Any:
        types = {name: self.form(oid, full) for name, oid, full in table.columns}
        return [(name, types[name]) for name in table.key]

    def within(self, oid: int) -> Iterator[str]:
        """Yield the names of the types of which a type is made, and its own."""
        if type_ := self.types.get(oid):
            yield type_.name
            for part in (type_.base, type_.item, *(of for _, of, _ in type_.attributes)):
                yield from self.within(part)

    def value(self, chance: Random, oid: int, name: str, *, null: float = 0.15) -> str:
        """Draw an expression of a type."""
        if chance.random() < null:
            return "NULL"
        type_ = self.types.get(oid)
        if type_ is not None and type_.base:
            return f"({self.value(chance, type_.base, type_.base_name, null=0)})::{type_.name}"
        if type_ is not None and type_.labels:
            return f"'{chance.choice(type_.labels)}'::{type_.name}"
        if type_ is not None and type_.item:
            items = [self.value(chance, type_.item, type_.item_name) for _ in range(chance.randint(0, 2))]
            return f"ARRAY[{', '.join(items)}]::{type_.name}"
        if type_ is not None and type_.kind == "c":
            fields = [self.value(chance, of, full) for _, of, full in type_.attributes]
            return f"ROW({', '.join(fields)})::{type_.name}"
        text = chance.choice(VALUES[name.split("(")[0] + name.partition(")")[2]])
        return "'" + text.replace("'", "''") + f"'::{name}"

    def draw_type(self, chance: Random, names: tuple[str, ...] = BUILT_IN) -> str:
        own = {type_.name: type_ for type_ in self.own}
        name = chance.choice(list(own) if own and chance.random() < 0.5 else names)
        # The server reads an array of JSON arrays as one array of two dimensions, also if its items are of a domain.
        whole = name in own and isinstance(self.form(own[name].oid, name), list)
        return name if whole or chance.random() < 0.85 else f"{name}[]"


def create_types(chance: Random, catalog: Catalog, number: int) -> Statement:
    kind = chance.choice("ddec")
    if kind == "d":
        text = f"CREATE DOMAIN d{number} AS {catalog.draw_type(chance)}"
    elif kind == "e":
        labels = ", ".join(f"'{label}'" for label in chance.sample(LABELS, 3))
        text = f"CREATE TYPE e{number} AS ENUM ({labels})"
    else:
        attributes = (f"{name} {catalog.draw_type(chance)}" for name in "pqr"[: chance.randint(1, 3)])
        text = f"CREATE TYPE c{number} AS ({', '.join(attributes)})"
    return Statement(text, makes=f"{kind}{number}")


def create_table(chance: Random, catalog: Catalog, name: str, *, full: bool, parted: bool) -> list[str]:
    """Return statements that a server may refuse: not every type can be in a key."""
    columns = {f"k{number}": catalog.draw_type(chance, KEYS) for number in range(chance.choice((1, 1, 2)))}
    key = list(columns)
    if parted:
        columns, key = {"part": "int", **columns}, ["part", *key]
    columns |= {f"v{number}": catalog.draw_type(chance) for number in range(chance.randint(1, 4))}
    large = chance.random() < 0.5
    columns |= {"large": "text"} if large else {}
    listed = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
    texts = [f"CREATE TABLE {name} ({listed}, PRIMARY KEY ({', '.join(key)}))" + " PARTITION BY LIST (part)" * parted]
    texts += [f"CREATE TABLE {name}_{n} PARTITION OF {name} FOR VALUES IN ({n})" for n in (1, 2, 3) if parted]
    of = [f"{name}_{n}" for n in (1, 2, 3)] if parted else []
    texts += [f"ALTER TABLE {each} ALTER large SET STORAGE EXTERNAL" for each in (name, *of) if large]
    return texts + [f"ALTER TABLE {each} REPLICA IDENTITY FULL" for each in (name, *of) if full]


def dml(chance: Random, catalog: Catalog, table: Table) -> Statement:
    def value(name: str, oid: int, full: str) -> str:
        if name == "large" and full == "text":
            return f"repeat('{chance.choice('abc')}', {chance.choice((10, 3000, 9000))})"
        if name == "part":
            return str(chance.randint(1, 3))
        return catalog.value(chance, oid, full, null=0 if name in table.key else 0.15)

    names = ", ".join(table.key)
    some = (
        f"({names}) IN (SELECT {names} FROM {table.name} x ORDER BY md5(x::text || '{chance.random()}')"
        f" LIMIT {chance.choice((1, 1, 2, 5))})"
    )

    def row() -> dict[str, str]:
        return {name: value(name, oid, full) for name, oid, full in table.columns}

    drawn = row()
    kind = chance.choices(("insert", "update", "key", "delete"), (4, 4, 0 if table.large else 1, 1.5))[0]
    changed = chance.choice(table.key) if kind == "key" or not table.others else chance.choice(table.others)
    if kind == "insert" or (kind == "update" and not table.others):
        rows = [drawn, *(row() for _ in range(chance.choice((0, 0, 3, 6))))]
        listed = ", ".join(f"({', '.join(each.values())})" for each in rows)
        then = f"UPDATE SET {changed} = EXCLUDED.{changed}"
        then = "NOTHING" if table.large or not table.others or len(rows) > 1 else then
        return Statement(
            f"INSERT INTO {table.name} ({', '.join(drawn)}) VALUES {listed} ON CONFLICT ({names}) DO {then}"
        )
    if kind == "delete":
        return Statement(f"DELETE FROM {table.name} WHERE {some}")
    return Statement(f"UPDATE {table.name} SET {changed} = {drawn[changed]} WHERE {some}")


def ddl(chance: Random, catalog: Catalog, table: Table, number: int, *, renames: bool) -> Statement:
    """Draw a statement about *table* or a type, with *number* in what it makes."""
    while True:
        found = chance.choice(_DDL)
        for statement in found(chance, catalog, table, number):
            if renames or ("RENAME COLUMN" not in statement.text and "RENAME ATTRIBUTE" not in statement.text):
                return statement


Draw = Callable[[Random, Catalog, Table, int], Iterator[Statement]]


def _columns(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    alter = f"ALTER TABLE {table.name}"
    type_ = catalog.draw_type(chance)
    yield chance.choice(
        [
            Statement(f"{alter} ADD COLUMN v{number} {type_}"),
            Statement(f"{alter} ADD COLUMN v{number} int NOT NULL DEFAULT {number}"),
            Statement(f"{alter} ADD COLUMN v{number} numeric DEFAULT '1.50', ADD COLUMN w{number} {type_}"),
            *(Statement(f"{alter} DROP COLUMN {name}") for name in table.others[:3]),
        ]
    )


def _renames(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    name = chance.choice([name for name, *_ in table.columns])
    yield Statement(f"ALTER TABLE {table.name} RENAME COLUMN {name} TO r{number}")


def _retypes(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    name, oid, full = chance.choice(table.columns)
    type_ = catalog.types.get(oid)
    to = ["text", f"{catalog.draw_type(chance)}"]
    to += [type_.base_name] * 4 if type_ is not None and type_.base else []
    to += {"integer": ["bigint", "numeric"], "bigint": ["numeric"], "numeric(9,2)": ["numeric(11,2)"]}.get(full, [])
    new = chance.choice(to)
    yield Statement(f"ALTER TABLE {table.name} ALTER COLUMN {name} TYPE {new} USING {name}::text::{new}")


def _labels(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    for type_ in chance.sample(catalog.own, len(catalog.own)):
        if type_.labels:
            if chance.random() < 0.5:
                yield Statement(f"ALTER TYPE {type_.name} ADD VALUE 'l{number}' BEFORE '{type_.labels[0]}'")
            yield Statement(f"ALTER TYPE {type_.name} RENAME VALUE '{chance.choice(type_.labels)}' TO 'l{number}'")


def _attributes(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    # Without an attribute, keys that were different can be equal: the server lets its unique index have both.
    columns = [(oid, name in each.key) for each in catalog.tables.values() for name, oid, _ in each.columns]
    keys = {name for oid, in_key in columns if in_key for name in catalog.within(oid)}
    for type_ in chance.sample(catalog.own, len(catalog.own)):
        if type_.kind == "c":
            alter, names = f"ALTER TYPE {type_.name}", [name for name, *_ in type_.attributes]
            if len(names) > 1 and type_.name not in keys and chance.random() < 0.4:
                yield Statement(f"{alter} DROP ATTRIBUTE {chance.choice(names)}", drops=type_.name)
            elif names and chance.random() < 0.3:
                yield Statement(f"{alter} RENAME ATTRIBUTE {chance.choice(names)} TO a{number}")
            drawn = catalog.draw_type(chance)
            yield Statement(f"{alter} ADD ATTRIBUTE a{number} {drawn}", makes=type_.name)


def _types(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    yield create_types(chance, catalog, number)


def _gone_types(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    for type_ in chance.sample(catalog.own, len(catalog.own)):
        cascade = " CASCADE" * (chance.random() < 0.1)
        what = "DOMAIN" if type_.kind == "d" else "TYPE"
        if chance.random() < 0.2:
            yield Statement(f"ALTER {what} {type_.name} RENAME TO {type_.kind}{number}")
        yield Statement(f"DROP {what} {type_.name}{cascade}", "key" * bool(cascade), drops=type_.name)


def _table(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    alter = f"ALTER TABLE {table.name}"
    keys = ", ".join(chance.sample(table.key, len(table.key)))
    yield chance.choice(
        [
            Statement(f"{alter} RENAME TO t{number}"),
            Statement(f"{alter} DROP CONSTRAINT {table.name}_pkey, ADD PRIMARY KEY ({keys})"),
            Statement(f"VACUUM FULL {table.name}"),
            Statement(f"ANALYZE {table.name}"),
            Statement(f"CREATE INDEX ON {table.name} (({table.key[0]}::text))"),
        ]
    )


def _partitions(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    for parent in catalog.tables.values():
        if parent.partitions is not None:
            for child in catalog.tables.values():
                if child.partitions is None and child.name[-2:] in ("_1", "_2", "_3"):
                    yield Statement(
                        f"ALTER TABLE {parent.name} ATTACH PARTITION {child.name} FOR VALUES IN ({child.name[-1]})",
                        "partition",
                    )
            if len(parent.partitions) > 1:
                yield Statement(
                    f"ALTER TABLE {parent.name} DETACH PARTITION {chance.choice(parent.partitions)}", "partition"
                )


def _ends(chance: Random, catalog: Catalog, table: Table, number: int) -> Iterator[Statement]:
    if chance.random() < 0.15:
        yield Statement(f"TRUNCATE {table.name}", "TRUNCATE|truncated")
    if chance.random() < 0.15:
        yield Statement(f"ALTER TABLE {table.name} DROP COLUMN {table.key[0]}", "key")


_DDL: tuple[Draw, ...] = (_columns, _columns, _columns, _renames, _retypes, _retypes, _labels, _attributes, _attributes,
                          _types, _gone_types, _table, _partitions, _ends)  # fmt: skip
