"""docs/trace.md: its example is what `cdc trace` prints of such a change."""

from __future__ import annotations

import re

from cdc_testing.imports import ROOT

from cdc_core.cli.trace import change_lines
from cdc_core.store.traced_change import STAGES, TracedChange

PAGE = (ROOT / "docs" / "trace.md").read_text()


def test_the_page_shows_what_cdc_trace_prints() -> None:
    [printed] = re.findall(r"\$ cdc trace orders [^\n]*\n(.*?)```", PAGE, re.DOTALL)
    committed = 1769860800.0
    moments = {stage: committed + float(after) for stage, after in re.findall(r"  (\w+) +\+([\d.]+) s", printed)}
    change = {
        "table": "shop.public.orders",
        "key": "[42]",
        "op": "update",
        "position": "0/1AF9CF8",
        "step": 17,
        "updated": "1769860800000000000.0000000000",
        "place": {"topic": "orders", "partition": 2, "offset": 1234},
        "marks": True,
        **moments,
    }
    assert "\n".join(change_lines(TracedChange.from_json(change))) + "\n" == printed


def test_the_page_explains_each_stage() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(STAGES)
