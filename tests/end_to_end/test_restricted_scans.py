"""Whoever leaves out rows, what the query gives stays the same: PostgreSQL, Arrow and Spark compare alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.restricted_scan import conditions
from cdc_testing.evaluating import answers, planned
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.logprobe import LogProbe

from cdc_core import Op, RowBatch
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.queries.arrow_evaluation import candidates
from cdc_core.queries.binding import bind
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query
from cdc_core.spark.query_planning import query_session

pytestmark = pytest.mark.slow

ROWS = 500
VALUES = {
    "small": ("smallint", ["-3", "0", "1", "2"], ["-3", "0", "2", "40000"]),
    "big": ("bigint", ["-9223372036854775808", "0", "9223372036854775807"], ["0", "9223372036854775807", "-5"]),
    "txt": ("text", ["''", "'a'", "'A'", "'a '", "'ä'", "E'\\\\'", "'it''s'"], ["''", "'a'", "'ä'", "'\\'", "'it''s'"]),
    "tag": ("label", ["'a'", "'A'", "'á'"], ["'a'", "'á'"]),
    "var": ("varchar(3)", ["''", "'a'", "'a '"], ["'a'", "'a '", "'longer'"]),
    "fixed": ("char(3)", ["''", "'a'"], ["'a'", "'a  '", "''"]),
    "mood": ("mood", ["'sad'", "'ok'"], ["'sad'", "'none'"]),
    "uid": (
        "uuid",
        ["'00000000-0000-0000-0000-00000000000a'", "'00000000-0000-0000-0000-00000000000b'"],
        ["'00000000-0000-0000-0000-00000000000a'", "'00000000-0000-0000-0000-00000000000A'", "'x'"],
    ),
    "yes": ("boolean", ["true", "false"], ["true", "false"]),
    "price": ("numeric(8,2)", ["-1.5", "0", "2", "2.01", "'NaN'"], ["0", "2", "-1", "123456789012"]),
    "free": ("numeric", ["0", "2", "'NaN'", "'Infinity'", "1e-30"], ["0", "2"]),
    "day": (
        "date",
        ["'2024-02-29'", "'0044-03-15 BC'", "'infinity'", "'-infinity'", "'1582-10-10'"],
        ["DATE '2024-02-29'", "DATE '1582-10-10'", "'2024-02-29'"],
    ),
    "moment": (
        "timestamp",
        ["'2024-01-01 10:00:00.5'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'1500-01-01'"],
        ["TIMESTAMP '2024-01-01 10:00:00.5'", "TIMESTAMP '1500-01-01'", "TIMESTAMP_NTZ '2024-01-01 00:00:00'"],
    ),
    "instant": (
        "timestamptz",
        ["'2024-01-01 10:00:00.5+02'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'1500-01-01 00:00:00Z'"],
        ["TIMESTAMP '2024-01-01 08:00:00.5'", "TIMESTAMP '1500-01-01'"],
    ),
    "pair": ("pair", ["'(,)'", "'(1,2)'"], []),
    "doc": ("jsonb", ["'null'", "'{}'"], []),
}
"""Of each column its type, values in SQL, and constants to compare it with."""
EVENTS = ["event_op() <> 'insert'", "'update' = event_op()"]
FOR_SPARK = [
    *EVENTS,
    "id + 1 > 250",
    "upper(txt) = 'A'",
    "100 / small > 50",
    "yes OR small = 1",
    "cast(var AS int) = 1",
]


@dataclass
class Truth:
    """For which rows a condition holds in Spark, and for which it fails."""

    holds: set[int] = field(default_factory=set)
    fails: set[int] = field(default_factory=set)


def atom(rng: random.Random) -> str:
    name = rng.choice(list(VALUES))
    constants = VALUES[name][2]
    kind = rng.randrange(6) if constants else 0
    if kind == 0:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    if name == "yes" and kind < 4:
        return rng.choice(["yes", "NOT yes", "yes = true"])
    if kind == 1:
        return f"{name} IN ({', '.join(rng.choices(constants, k=2))})"
    if kind == 2:
        return f"{rng.choice(constants)} {rng.choice(['<', '=', '>='])} {name}"
    if kind == 3:
        return f"{name} BETWEEN {rng.choice(constants)} AND {rng.choice(constants)}"
    return f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {rng.choice(constants)}"


def condition(rng: random.Random) -> str:
    parts = [atom(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(FOR_SPARK))
    return " AND ".join(f"({part})" if rng.random() < 0.3 else part for part in parts)


@pytest.fixture
def probe(database: str) -> Iterator[LogProbe]:
    with LogProbe(database) as probe:
        yield probe


def fill(probe: LogProbe, rng: random.Random) -> None:
    probe.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    probe.execute('CREATE DOMAIN label AS text COLLATE "C"')
    probe.execute("CREATE TYPE pair AS (a int, b int)")
    columns = ", ".join(f"{name} {type_}" for name, (type_, _, _) in VALUES.items())
    probe.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    probe.watch("t")
    rows = []
    for number in range(ROWS):
        values = (rng.choice([*values, *values, "NULL"]) for _, values, _ in VALUES.values())
        rows.append(f"({number}, {', '.join(values)})")
    probe.execute(f"INSERT INTO t VALUES {', '.join(rows)}")


def test_postgresql_and_arrow_leave_out_only_rows_that_spark_would(probe: LogProbe, kept_spark: KeptSpark) -> None:
    rng = random.Random(7)
    fill(probe, rng)
    version = probe.version("t")
    schema = version.schema
    after = probe.scan(version)
    texts = list(dict.fromkeys(condition(rng) for _ in range(120)))
    with kept_spark.lent():
        session = query_session(kept_spark.session())
        items = ", ".join(f"({text}) AS c{index}" for index, text in enumerate(texts))
        plans = planned(session, f"SELECT id, {items} FROM t", schema)
        count = len(after)
        at = RowBatch.timestamps(pa.array([1] * count, pa.int64()), pa.array([0] * count, pa.int32()))
        rows = RowBatch.of(
            schema,
            op=pa.array(rng.choices([Op.INSERT, Op.UPDATE, Op.SCAN], k=count), pa.uint8()),
            updated=at,
            key=RowBatch.struct(schema.key_type, [after.field("id")]),
            after=after,
        )
        truths = {text: Truth() for text in texts}
        for found in answers(session, plans, rows):
            batch = found.row if isinstance(found, BadRow) else found
            unknown = batch.column("unavailable").to_pylist() if batch.has_unavailable else [None] * len(batch)
            for row, lacking in zip(batch.column("after").to_pylist(), unknown, strict=True):
                for index, text in enumerate(texts):
                    if f"c{index}" in (lacking or ()):
                        truths[text].fails.add(row["id"])
                    elif row[f"c{index}"]:
                        truths[text].holds.add(row["id"])
    restricting = filtering = 0
    for text, truth in truths.items():
        restriction = restriction_of(parse_query(f"SELECT * FROM t WHERE {text}"), schema)
        where = " AND ".join(["true", *conditions(version, restriction)])
        read = {row[0] for row in probe.execute(f"SELECT id FROM t AS l WHERE {where}".replace("%", "%%"), [])}
        assert truth.holds | truth.fails <= read, (text, where)
        restricting += len(read) < ROWS
        bound = bind(parse_query(f"SELECT id FROM t WHERE {text}"), schema)
        left = set(candidates(rows, bound).column("key").field("id").to_pylist())
        assert truth.holds | truth.fails <= left, text
        assert not bound.decided or (left, truth.fails) == (truth.holds, set()), text
        filtering += len(left) < ROWS
        exact = not restriction.keep_unknown and "fixed" not in text
        assert not exact or read == truth.holds, (text, where)
    assert min(restricting, filtering) > len(texts) // 3
