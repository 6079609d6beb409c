from __future__ import annotations

from pathlib import Path

from cdc_encoder_json.options import JsonOptions

from cdc_core.options import describe

README = Path(__file__).parents[1] / "README.md"


def test_the_options_table_of_the_readme_is_the_generated_one() -> None:
    docs = {row.name: row.doc + " Secret." * row.secret for row in describe(JsonOptions)}
    rows = [f"| `{row.name}` | {row.type} | {row.default} | {docs[row.name]} |" for row in describe(JsonOptions)]
    table = "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *rows])
    text = README.read_text(encoding="utf-8")
    assert f"<!-- options: begin -->\n{table}\n<!-- options: end -->" in text
