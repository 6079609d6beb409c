"""Random changes to a table with a column of every type: each version arrives complete, with the version before it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_conformance.validators import BeforeAfterValidator, CompletenessValidator, OrderValidator
from cdc_testing.files import last_resolved, validate_files
from cdc_testing.history import arrivals, commits, record, recorded
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES
from cdc_testing.runs import Feed
from psycopg import sql

pytestmark = pytest.mark.slow

MAKERS = {**BINARY_MAKERS, **TEXT_MAKERS}
NOT_READ_BACK = {"json[]", "jsonb[]"}
"""Types that the server cannot read back from JSON: brackets may be dimensions or values."""
COLUMNS = {f"c{number}": type_ for number, type_ in enumerate(MAKERS) if type_ not in NOT_READ_BACK}
KEYS = 60


def value(type_: str, chance: random.Random) -> str | None:
    """Return a value that the server reads back from its JSON, which has no JSON null and no bounds of arrays."""
    if chance.random() < 0.15:
        return None
    while True:
        text = MAKERS[type_](chance)
        if type_ == "json":
            text = text.replace("\n", " ")  # the encoder does this too: a message is one line
        lost = text == "null" or (type_.endswith(("[]", "positives")) and text.startswith("["))
        bc = type_.startswith(("date", "time")) and " BC" in text  # written as in ISO 8601: -0043-03-15
        if not lost and not bc:
            return text


def change(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Run one random transaction of one to four statements. Some are rolled back."""
    for _ in range(chance.randint(1, 4)):
        key = chance.randrange(KEYS)
        some = chance.sample(sorted(COLUMNS), chance.randint(1, 6))
        values = [value(COLUMNS[name], chance) for name in some]
        kind = chance.choices(("upsert", "move", "delete"), weights=(8, 1, 2))[0]
        if kind == "delete":
            connection.execute("DELETE FROM t WHERE id = %s", [key])
        elif kind == "move":
            connection.execute(
                "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)",
                [(key + 1) % KEYS, key, (key + 1) % KEYS],
            )
        else:
            names = sql.SQL(", ").join(map(sql.Identifier, some))
            marks = sql.SQL(", ").join(sql.SQL("%s::text::") + sql.SQL(COLUMNS[name]) for name in some)  # type: ignore[arg-type]
            news = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in some)
            connection.execute(
                sql.SQL("INSERT INTO t (id, {}) VALUES (%s, {}) ON CONFLICT (id) DO UPDATE SET {}").format(
                    names, marks, news
                ),
                [key, *values],
            )
    if chance.random() < 0.1:
        connection.rollback()
    else:
        connection.commit()


def test_every_version_of_every_type_arrives_with_the_version_before_it(
    database: str, tmp_path: Path, kept_spark: KeptSpark
) -> None:
    chance = random.Random(4)
    with psycopg.connect(database) as connection:
        connection.execute(TYPES)
        columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        connection.commit()
        for _ in range(40):
            change(connection, chance)
        record(connection, "t")
        connection.commit()
        scanned = frozenset(recorded(connection))
        connection.commit()
        with Feed(tmp_path, database, ["t"], options={"diff": True}) as feed:

            def follow() -> None:
                feed.until("the initial scan", lambda: bool(last_resolved(feed.files)))
                for _ in range(600):
                    change(connection, chance)

            feed.during(kept_spark, follow)
            feed.once(kept_spark)
            for _ in range(200):
                change(connection, chance)
            feed.once(kept_spark)
        order = OrderValidator()
        validate_files(feed.files, ["t"], [order])
        assert order.failures() == []
        complete = CompletenessValidator(commits("t", recorded(connection), scanned), started=1)
        images = BeforeAfterValidator()
        for row in arrivals(feed.files, connection, "t"):
            complete.note_row(row)
            images.note_row(row)
        assert complete.failures() == []
        assert images.failures() == []
