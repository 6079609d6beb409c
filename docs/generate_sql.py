"""Writes the table of CockroachDB's options in docs/sql.md.

python docs/generate_sql.py            write it
python docs/generate_sql.py --check    exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import main, replaced, table

from cdc_core.statements.options import OPTIONS, CockroachOption

PAGE = Path(__file__).with_name("sql.md")


def generated(page: str) -> str:
    """Return *page* with the table that the code has now."""
    rows = [(f"`{option.name}`", option.kind, meaning(option)) for option in OPTIONS]
    return replaced(page, "options", table(["option of CockroachDB", "value", "here"], rows))


def meaning(option: CockroachOption) -> str:
    """Return what the option is here."""
    if option.ours is None:
        return f"refused: {option.note}"
    same = option.ours == option.name
    if option.bare is not None and not same:
        return f"`{option.ours} = '{option.bare}'`"
    parts = ["the same" if same else f"`{option.ours}`"]
    if option.bare is not None:
        parts.append(f"without a value: `{option.bare}`")
    parts += [f"`{theirs}` is `{ours}`" for theirs, ours in option.values.items()]
    return "; ".join(parts) + (f". {option.note}" if option.note else "")


if __name__ == "__main__":
    sys.exit(main([(PAGE, generated(PAGE.read_text()))]))
