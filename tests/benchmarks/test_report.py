from __future__ import annotations

import json
from pathlib import Path

from benchmarks.page import BEGIN, END, FILES, KAFKA, LATENCY, START, write_page
from benchmarks.report import GIB, Figure, Target, percentile, write_json


def test_percentile_is_a_value_that_the_share_does_not_exceed() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert percentile([7.0], 0.01) == 7.0


def test_ratio_is_better_when_greater_whatever_the_unit() -> None:
    assert Figure(name="rate", value=80.0, unit="rows/s", peer=10.0).ratio == 8.0
    assert Figure(name="latency", value=0.5, unit="s", peer=1.0).ratio == 2.0
    assert Figure(name="alone", value=0.5, unit="s").ratio is None


def test_target_is_met_only_when_all_of_it_is() -> None:
    target = Target(at_least=100, per_peer=8)
    assert Figure(name="both", value=120.0, unit="rows/s", peer=10.0, target=target).met
    assert not Figure(name="too near the peer", value=120.0, unit="rows/s", peer=20.0, target=target).met
    assert not Figure(name="too slow", value=90.0, unit="rows/s", peer=10.0, target=target).met
    assert not Figure(name="no peer", value=120.0, unit="rows/s", target=target).met
    assert Figure(name="no target", value=1.0, unit="s").met is None


def test_file_holds_figures_with_ratio_and_verdict(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    write_json(path, [Figure(name="latency", value=0.4, unit="s", target=Target(below=0.5))], scale=0.1)
    written = json.loads(path.read_text())
    assert written["scale"] == 0.1
    assert written["figures"][0]["met"] is True
    assert written["machine"]["cores"] >= 1


def test_page_shows_each_peer_beside_us(tmp_path: Path) -> None:
    shared = {"server_s_per_million": {"ours": 1.61, "peer": 3.8}, "memory": {"ours": GIB, "peer": GIB // 2}}
    figures = [
        Figure(name=what + start, value=value, unit="rows/s", peer=value / 4, peer_name=peer, details=shared)
        for what, peer in ((FILES, "Debezium"), (FILES, "mq-bridge"), (KAFKA, "Debezium"))
        for start, value in (("", 300_000.0), (START, 200_000.0))
    ]
    figures += [Figure(name=f"{name}, p{share}", value=share / 100, unit="s") for name in LATENCY for share in (50, 99)]
    (tmp_path / "images").mkdir()
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Benchmarks\n\n{BEGIN}old\n{END}\nmore\n")
    write_json(tmp_path / "bench.json", figures)
    for _ in range(2):  # what an earlier run wrote is replaced
        write_page(tmp_path / "bench.json", tmp_path)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n")
    assert text.endswith(f"{END}\nmore\n")
    assert "| **ours, to JSON files** | 300,000 |  | 200,000 |  | 1.00 GiB | 1.6 |" in text
    assert text.count("| mq-bridge, not synced | 75,000 | 4.0 times | 50,000 | 4.0 times | 0.50 GiB | 3.8 |") == 1
    assert "old" not in text
    assert (tmp_path / "images" / "peers.svg").read_text().count("<rect") == 5
