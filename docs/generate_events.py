"""The table of docs/debugging.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pages import replaced, table

from cdc_core.store.event_values import KINDS

PAGE = Path(__file__).with_name("debugging.md")


def generated() -> Iterator[tuple[Path, str]]:
    """Yield the page with the table that the code has now."""
    events = table(["event", "meaning"], [(f"`{kind}`", text) for kind, text in KINDS.items()])
    yield PAGE, replaced(PAGE.read_text(), "events", events)
