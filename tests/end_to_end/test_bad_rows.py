"""PostgreSQL rows that no Parquet file takes: stopped at, made dead letters, sent again, and none lost in kills."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.files import last_resolved
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.local_engine import LocalEngine
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

from cdc_core import Changefeed, Timestamp
from cdc_core.cli.main import main
from cdc_core.config.resolve import resolve
from cdc_core.delivery.replay import DeadLetterReader
from cdc_core.engine.replay import replay as send_again
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

pytestmark = pytest.mark.slow

ROWS = 20_000
BAD = 12_345


def feed_of(directory: Path, uri: str, **options: object) -> Feed:
    return Feed(directory, uri, ["items"], format_="parquet", options=options)


def dead_letter_options(directory: Path, **options: object) -> dict[str, object]:
    return {"on_error": "dead_letter", "dead_letter": f"file://{directory}/dead", **options}


def delivered(feed: Feed) -> list[dict[str, Any]]:
    """Return the rows of all files, in the order of the files."""
    paths = sorted(feed.files.rglob("*.parquet"), key=lambda path: path.name)
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def letters(directory: Path) -> list[dict[str, Any]]:
    paths = sorted((directory / "dead").rglob("*.ndjson"))
    return [json.loads(line)["after"] for path in paths for line in path.read_text().splitlines()]


def replay(feed: Feed) -> tuple[int, str]:
    with redirect_stdout(StringIO()) as said:
        status = main(["replay-dead-letters", str(feed.toml), "--state", str(feed.state)])
    return status, said.getvalue()


def numbers(rows: Iterable[dict[str, Any]]) -> list[int]:
    return [row["n"] for row in rows]


def test_a_row_among_many_that_the_encoder_does_not_take(
    database: str, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, day date)")
        connection.execute(
            "INSERT INTO items SELECT n, n, CASE n WHEN %s THEN date 'infinity' ELSE date '2024-02-29' END"
            " FROM generate_series(1, %s) n",
            [BAD, ROWS],
        )
        with feed_of(tmp_path, database) as stopped:
            assert stopped._run_here(kept_threads, "--once") == 1
        said = stopped.log().splitlines()[-1]
        assert f"the row of table public.items with key {{'id': {BAD}}}, updated " in said
        assert "was refused by encoder 'parquet' (stage encode): cannot encode column day" in said
        assert "set on_error='dead_letter'" in said

        options = dead_letter_options(tmp_path, dead_letter_order="block_key")
        with feed_of(tmp_path, database, **options) as feed:
            feed.once(kept_threads)
            assert sorted(set(numbers(delivered(feed)))) == [n for n in range(1, ROWS + 1) if n != BAD]
            [letter] = letters(tmp_path)
            assert (letter["table"].rpartition(".")[2], letter["key"], letter["stage"]) == ("items", [BAD], "encode")
            assert letter["row"] == {"id": BAD, "n": BAD, "day": "infinity"}
            assert "(stage encode)" in feed.log()

            connection.execute("UPDATE items SET n = n + 100000, day = '2024-03-01' WHERE id IN (%s, 1)", [BAD])
            feed.once(kept_threads)
            assert (100_001 in numbers(delivered(feed)), BAD + 100_000 in numbers(delivered(feed))) == (True, False)
            assert replay(feed)[0] == 1
            status, told = replay(feed)
            assert (status, told.splitlines()[0]) == (1, "changefeed 'test': 0 rows replayed, 2 dead letters remaining")

    with feed_of(tmp_path, database, parquet_special_values="string", **options) as corrected:
        assert replay(corrected) == (0, "changefeed 'test': 2 rows replayed, 0 dead letters remaining\n")
        of_key = [row["n"] for row in delivered(corrected) if row["id"] == BAD]
        assert of_key == [BAD, BAD + 100_000]
        corrected.once(kept_threads)
        assert sorted(set(numbers(delivered(corrected)))) == sorted([*range(1, ROWS + 1), 100_001, BAD + 100_000])


def test_no_row_is_lost_when_a_worker_and_the_driver_are_killed_while_rows_become_dead_letters(
    database: str, tmp_path: Path, kept_spark: KeptSpark
) -> None:
    written: set[int] = set()
    options = dead_letter_options(tmp_path, dead_letter_max=100_000, max_step_rows=2000)
    spark = {"spark.log.level": "INFO"}  # it tells of every task that it loses
    with (
        psycopg.connect(database, autocommit=True) as connection,
        Feed(tmp_path, database, ["items"], format_="parquet", options=options, spark=spark) as feed,
    ):
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, day date)")

        def write(first: int, count: int) -> None:
            connection.execute(
                "INSERT INTO items SELECT n %% 997, n, CASE n %% 50 WHEN 0 THEN date 'infinity' END"
                " FROM generate_series(%s::bigint, %s) n"
                " ON CONFLICT (id) DO UPDATE SET n = excluded.n, day = excluded.day",
                [first, first + count - 1],
            )
            written.update(range(first, first + count))

        rounds = itertools.count(1)

        def there_are_more(than: int) -> bool:
            """Every step has bad rows among its rows, so that each kill comes in the way of some."""
            write(next(rounds) * 1000, 900)
            return len(letters(tmp_path)) > than

        def worker_is_killed() -> bool:
            write(next(rounds) * 1000, 900)
            return feed.kill_a_worker()

        write(1, 900)
        feed.start()
        feed.until(
            "the end of the scan, before which versions may be passed over", lambda: bool(last_resolved(feed.files))
        )
        of_the_scan = len(letters(tmp_path))
        feed.until("bad rows of the log", lambda: there_are_more(of_the_scan))
        lost = feed.lost_tasks()
        feed.until("a worker at work", worker_is_killed)
        feed.until("the loss of its task", lambda: feed.lost_tasks() > lost)
        seen = len(letters(tmp_path))
        feed.until("bad rows after the worker", lambda: there_are_more(seen))
        feed.kill_driver()
        assert len(letters(tmp_path)) > of_the_scan > 0
        feed.once(kept_spark)
    there = {row["n"] for row in delivered(feed)}
    refused = {letter["row"]["n"] for letter in letters(tmp_path)}
    assert there | refused == written
    assert refused == {n for n in written if n % 50 == 0}
    assert not there & refused
    waiting = ProgressStore(store_url(feed.state)).dead_letters.of("test")
    entries = [(letter.table, letter.key, letter.updated) for letter in waiting]
    assert len(entries) == len(set(entries))
    status, told = replay(feed)
    assert status == 1
    assert told.startswith(f"changefeed 'test': 0 rows replayed, {len(entries):,} dead letters remaining")


def test_dead_letters_in_kafka_are_read_back_and_sent(tmp_path: Path, kafka_broker: Kafka, topic_prefix: str) -> None:
    uri = f"kafka://{kafka_broker.bootstrap_servers}?topic_prefix={topic_prefix}"
    refused = tmp_path / "bad-rows"
    refused.write_text(json.dumps({"how": "refuse", "rows": [17, 250]}))
    bare = Changefeed(name="t", source="postgresql://u@h/d", tables=("counter",), sink="file:///nowhere")
    letters = resolve(
        replace(bare, options={"on_error": "dead_letter", "dead_letter": uri}), PluginHost.load()
    ).dead_letter
    options = {"on_error": "dead_letter", "dead_letter": uri}
    feed = counter_feed(tmp_path, options=options, dead_letter=letters, total=300)
    engine = LocalEngine(feed, tmp_path / "state")
    engine.run()
    engine.until(Timestamp(300))
    refused.unlink()
    find = DeadLetterReader(feed).find
    result, missing = send_again(feed, store=engine.store, state_dir=tmp_path / "state", find=find)
    assert (len(result.sent), len(result.kept), missing) == (2, 0, 0)
    assert sorted(Journal(tmp_path).of("rows")[-1][4]) == [[0, 250], [17, 17]]
