"""Generates the table of docs/debugging.md from the code.

python docs/generate_events.py            write it
python docs/generate_events.py --check    exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import main, replaced, table

from cdc_core.store.event_values import KINDS

PAGE = Path(__file__).with_name("debugging.md")


def generated(page: str) -> str:
    """Return *page* with the table that the code has now."""
    return replaced(page, "events", table(["event", "meaning"], [(f"`{kind}`", text) for kind, text in KINDS.items()]))


if __name__ == "__main__":
    sys.exit(main([(PAGE, generated(PAGE.read_text()))]))
