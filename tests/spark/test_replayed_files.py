"""Rows that are replayed from the dead letters are in manifests, and readers of manifests see them exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_testing.components import plugin, rangefeed, source_of
from cdc_testing.local_engine import LocalEngine

from cdc_core import Changefeed, ChangeReader, EncodeError, RowBatch, Timestamp
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.replay import DeadLetterReader
from cdc_core.engine.replay import replay
from cdc_core.plugins.entry_points import PLUGINS, published
from cdc_core.plugins.host import PluginHost

BAD = (17, 57, 120)


@pytest.fixture
def host() -> PluginHost:
    installed = [claim for claims in published(PLUGINS).values() for claim in claims]
    scripted = plugin(rangefeed(options="cdc_testing.scripted:CounterOptions"))
    return PluginHost([*installed, source_of(scripted, "cdc-paper")])


def resolved_feed(directory: Path, host: PluginHost, *, total: int) -> ResolvedChangefeed:
    changefeed = Changefeed(
        name="t",
        source="paper://desk",
        tables=("public.counter",),
        sink=f"file://{directory}/files",
        options={
            "control": str(directory),
            "total": total,
            "rows_per_step": 50,
            "keys": 10,
            "updated": True,
            "resolved": True,
            "min_checkpoint_frequency": 0,
            "on_error": "dead_letter",
            "dead_letter": f"file://{directory}/dead",
            "dead_letter_order": "block_key",
        },
    )
    return resolve(changefeed, host)


def numbers(reader: ChangeReader, *, after: Timestamp = Timestamp()) -> list[int]:
    return [n for rows in reader.read(after=after) for n in rows.column("after").field("n").to_pylist()]


def test_replayed_rows_are_read_exactly_once(tmp_path: Path, host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = JsonEncoder.lines

    def refuse_bad_rows(self: JsonEncoder, rows: RowBatch, *, topic: str) -> object:
        bad = [n for n in rows.column("after").field("n").to_pylist() if n in BAD] if topic == "counter" else []
        if bad:
            raise EncodeError(f"bad rows {bad}")
        return lines(self, rows, topic=topic)

    with monkeypatch.context() as patch:
        patch.setattr(JsonEncoder, "lines", refuse_bad_rows)
        engine = LocalEngine(resolved_feed(tmp_path, host, total=200), tmp_path / "state")
        engine.run()
        engine.until(Timestamp(200))
    waiting = {n for n in range(1, 201) for bad in BAD if n >= bad and n % 10 == bad % 10}
    with ChangeReader(f"file://{tmp_path}/files", host=host) as reader:
        first = reader.newest()
        assert sorted(numbers(reader)) == [n for n in range(1, 201) if n not in waiting]
    feed = resolved_feed(tmp_path, host, total=300)
    result, missing = replay(feed, store=engine.store, state_dir=tmp_path / "state", find=DeadLetterReader(feed).find)
    assert (len(result.sent), len(result.kept), missing) == (len(waiting), 0, 0)
    with ChangeReader(f"file://{tmp_path}/files", host=host) as reader:
        assert reader.newest() == first, "no mark covers the replayed rows yet"
    engine = LocalEngine(feed, tmp_path / "state")
    engine.run()
    engine.until(Timestamp(300))
    with ChangeReader(f"file://{tmp_path}/files", host=host) as reader:
        everything = numbers(reader)
        assert sorted(everything) == list(range(1, 301))
        for key in range(10):
            assert [n for n in everything if n % 10 == key] == sorted(n for n in everything if n % 10 == key)
        assert sorted(numbers(reader, after=first)) == sorted([*waiting, *range(first.wall + 1, 301)])
