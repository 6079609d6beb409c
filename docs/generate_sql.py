"""The table of CockroachDB's options in docs/sql.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pages import replaced, table

from cdc_core.statements.options import OPTIONS, CockroachOption

PAGE = Path(__file__).with_name("sql.md")


def generated() -> Iterator[tuple[Path, str]]:
    """Yield the page with the table that the code has now."""
    rows = [(f"`{option.name}`", option.kind, _meaning(option)) for option in OPTIONS]
    options = table(["option of CockroachDB", "value", "here"], rows)
    yield PAGE, replaced(PAGE.read_text(), "options", options)


def _meaning(option: CockroachOption) -> str:
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
