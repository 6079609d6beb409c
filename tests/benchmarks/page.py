"""The first picture and the first table of docs/benchmarks.md, made of build/bench.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.report import GIB

FILES, KAFKA = "log to JSON files", "log to JSON in Kafka"
LATENCY = ("latency from commit to durable file", "latency from commit to a Kafka consumer")
BENCHMARKS = ("log", "kafka", "latency", "kafka_latency")
"""What the page needs."""
START = ", from the start of the processes"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
_SAID = {
    "Debezium": "Debezium's engine, to nowhere",
    "Connect": "Debezium in Kafka Connect",
    "mq-bridge": "mq-bridge, not synced",
    "rivet": "rivet, not synced",
    "pg_recvlogical": "pg_recvlogical, not decoded",
}
_WIDTH, _LABELS, _BAR = 760, 250, 22
_GREY, _OURS, _THEIRS = "#808080", "#2f6fde", "#a9b4c2"

Found = Mapping[str, Any]


def write_page(bench: Path, docs: Path) -> None:
    """Write the table into *docs*/benchmarks.md, between its two marks, and the picture into *docs*/images/peers.svg.

    *bench* is the file that `run.py` wrote, with BENCHMARKS in it.
    """
    run = json.loads(bench.read_text())
    figures = run["figures"]
    page = docs / "benchmarks.md"
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(before + BEGIN + "\n".join(_lines(run, figures)) + "\n" + END + after)
    (docs / "images" / "peers.svg").write_text(_picture([(what, _bars(figures, what)) for what in (FILES, KAFKA)]))


def _lines(run: Found, figures: Sequence[Found]) -> Iterator[str]:
    machine, at = run["machine"], datetime.fromisoformat(run["at"])
    yield "![Changes a second, ours and those of others](images/peers.svg)"
    yield ""
    yield (
        f"Measured on {at:%Y-%m-%d}, {machine['cores']} cores that server and readers share, "
        f"{machine['memory'] / GIB:.0f} GiB, Python {machine['python']}. Each reader has a slot of its own with the"
        " same backlog, and they take turns."
    )
    yield ""
    yield "| from the log | changes/s | ours is | with its start | ours is | memory | server CPU, s per million |"
    yield "|---|---|---|---|---|---|---|"
    for what, place in ((FILES, "JSON files"), (KAFKA, "Kafka")):
        beside = _beside(figures, what)
        starts = {each["peer_name"]: each for each in _beside(figures, what + START)}
        first = beside[0]
        shared = first["details"].get("server_s_per_million", {}), first["details"].get("memory", {})
        yield _row(f"**ours, to {place}**", first["value"], "", starts[first["peer_name"]]["value"], "", shared, "ours")
        for each in beside:
            start = starts.get(each["peer_name"])
            of_start = (start["peer"], f"{start['ratio']:.1f} times") if start else (None, "")
            shared = each["details"].get("server_s_per_million", {}), each["details"].get("memory", {})
            ratio = f"{each['ratio']:.1f} times"
            yield _row(_SAID[each["peer_name"]], each["peer"], ratio, *of_start, shared, "peer")
    yield ""
    for name in LATENCY:
        median, last = (_of(figures, f"{name}, p{share}")["value"] for share in (50, 99))
        yield f"- {name[0].upper()}{name[1:]}: median {median:.2f} s, 99th percentile {last:.2f} s."


def _row(
    name: str, rate: float, ratio: str, start: float | None, of_start: str, shared: tuple[Found, Found], whose: str
) -> str:
    harm, memory = (each.get(whose) for each in shared)
    cells = [
        name,
        f"{rate:,.0f}",
        ratio,
        "" if start is None else f"{start:,.0f}",
        of_start,
        "" if memory is None else f"{memory / GIB:.2f} GiB",
        "" if harm is None else f"{harm:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _beside(figures: Sequence[Found], name: str) -> list[Found]:
    """Return the figures of *name*, once for each peer; those of Kafka Connect have its name in theirs."""
    main, _, start = name.partition(START)
    names = (name, f"{main}, beside Kafka Connect{START if START in name else ''}{start}")
    return [each for each in figures if each["name"] in names and each["peer"] is not None]


def _of(figures: Sequence[Found], name: str) -> Found:
    return next(each for each in figures if each["name"] == name)


def _bars(figures: Sequence[Found], what: str) -> list[tuple[str, float, str]]:
    beside = _beside(figures, what)
    return [
        ("ours", beside[0]["value"], _OURS),
        *((_SAID[each["peer_name"]], each["peer"], _THEIRS) for each in beside),
    ]


def _picture(groups: Sequence[tuple[str, Sequence[tuple[str, float, str]]]]) -> str:
    """Return bars as SVG, in colours that can be read on light and on dark."""
    greatest = max(rate for _, bars in groups for _, rate, _ in bars)
    parts, y = [], 0
    for what, bars in groups:
        y += _BAR + 8
        parts.append(_text(0, y, f"{what}, changes a second", weight="bold"))
        for name, rate, colour in bars:
            y += _BAR + 4
            width = rate / greatest * (_WIDTH - _LABELS - 90)
            parts.append(_text(_LABELS - 8, y, name, anchor="end"))
            parts.append(
                f'<rect x="{_LABELS}" y="{y - _BAR + 6}" width="{width:.0f}" height="{_BAR - 4}" fill="{colour}"/>'
            )
            parts.append(_text(_LABELS + width + 6, y, f"{rate:,.0f}"))
        y += 8
    height = y + 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'font-family="sans-serif" font-size="13" font-weight="{weight}" fill="{_GREY}" text-anchor="{anchor}"'
    return f'<text x="{x:.0f}" y="{y}" {style}>{escape(text)}</text>'
