from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.validators import SeenMark, SeenRow
from cdc_rangefeed_postgres.token import PostgresToken
from cdc_testing.local_engine import LocalEngine, resolved_feed

from cdc_core import Frontier, Span, Timestamp, Token

GOLDEN = Path(__file__).parent / "golden"
START, REACHED = Timestamp(1600000000251359177, 2), Timestamp(1600000000545940723)
POSTGRES_TOKENS: dict[str, Token] = {
    "log": {
        "lsn": "16/B374D848",
        "clock": "1700000000000000999.0000000000",
        "scan": None,
        "tables": {"public.t": {"oid": 16385, "key": ["id"], "version": 2, "shape": "f00d"}},
        "catalog": "beef",
        "settled": "16/B3000000",
    },
    "scan": {
        "lsn": "0/15E7B88",
        "clock": None,
        "scan": {
            "round": 1,
            "snapshot": {"id": "00000003-00000002-1", "at": "1700000000000000999.0000000000", "lsn": "0/15E7B88"},
            "phase": "scan",
            "done": 3,
            "total": 10,
            "block": 3,
            "parts": [[0, 16385, 16390, 10]],
        },
        "tables": {"public.t": {"oid": 16385, "key": ["id"], "version": 1, "shape": "f00d", "leaves": [16390]}},
        "catalog": "beef",
        "settled": "0/0",
    },
}


@pytest.fixture
def golden(tmp_path: Path) -> SimulatedDatabase:
    """The database of the golden files, and beside it the progress store of two changefeeds of it."""
    shutil.copytree(GOLDEN, tmp_path / "db", ignore=shutil.ignore_patterns("*.sql"))
    (tmp_path / "db" / "events-1.jsonl").rename(tmp_path / "db" / "events.jsonl")
    script = (GOLDEN / "progress-1.sql").read_text().replace("@DIRECTORY@", str(tmp_path))
    connection = sqlite3.connect(tmp_path / "progress.sqlite")
    connection.executescript(script)
    connection.close()
    return SimulatedDatabase(tmp_path / "db")


class Versions:
    """The `n` of each key's rows, in the order of their first arrival."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = {}

    def note_row(self, row: SeenRow) -> None:
        assert row.after is not None
        versions = self.seen.setdefault(row.key[0], [])
        if row.after["n"] not in versions:
            versions.append(row.after["n"])

    def note_resolved(self, mark: SeenMark) -> None: ...

    def failures(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("name", "arriving"),
    [
        ("scan", {**{id_: [1, 2] for id_ in (0, 1, 2)}, **{id_: [0, 1, 2] for id_ in (3, 4, 5)}}),
        ("log", {**{id_: [2] for id_ in (0, 1, 2)}, **{id_: [1, 2] for id_ in (3, 4, 5)}}),
    ],
)
def test_a_changefeed_goes_on_from_a_checkpoint_that_an_older_version_saved(
    golden: SimulatedDatabase,
    tmp_path: Path,
    faults: Callable[..., list[str]],
    name: str,
    arriving: dict[int, list[int]],
) -> None:
    """A82309: changefeeds stopped after an upgrade, because the new version did not read the old one's checkpoints."""
    feed = LocalEngine(resolved_feed(golden.uri, f"file://{tmp_path}/out", "t", name=name), tmp_path)
    feed.run()
    feed.until(golden.settle())
    versions = Versions()
    assert faults(["t"], exact=False, more=[versions]) == []
    assert versions.seen == arriving
    assert feed.progress.counters["steps"] > {"scan": 1, "log": 3}[name]


def test_everything_in_an_old_checkpoint_is_understood(golden: SimulatedDatabase, tmp_path: Path) -> None:
    """A82309: a field that is silently passed over is progress lost or, worse, made up."""
    store = LocalEngine(resolved_feed(golden.uri, f"file://{tmp_path}/out", "t", name="log"), tmp_path).store
    table, middle = "sim.public.t", bytes.fromhex("8000000000000003")
    progress = store.progress.load("log")
    assert progress is not None
    expected = Frontier([Span(table, b"", middle)], REACHED).to_json()
    expected += Frontier([Span(table, middle)], START).to_json()
    assert progress.frontier == Frontier.from_json(expected)
    assert progress.latest == REACHED
    assert progress.token["events"] == 21
    assert progress.counters == {
        "bytes": 900,
        "files": 5,
        "messages": 9,
        "rows": 9,
        "source.retained_s": 0.0,
        "steps": 3,
    }
    assert progress.saved_at is not None
    assert [(row.name, row.feed_id, row.epoch) for row in store.changefeeds.all()] == [
        ("log", "ba9876543210", 1),
        ("scan", "0123456789ab", 1),
    ]


@pytest.mark.parametrize("name", list(POSTGRES_TOKENS))
def test_positions_in_postgresql_that_an_older_version_saved_are_understood(name: str) -> None:
    """A82309: the part of a checkpoint that belongs to the source has a format too."""
    assert PostgresToken.from_json(POSTGRES_TOKENS[name]).to_json() == POSTGRES_TOKENS[name]
