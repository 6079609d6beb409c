"""llms.txt, which the site publishes, lists every page of the documentation with a sentence about it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "api"} - {ROOT / "docs" / "index.md"}


@pytest.fixture
def llms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    return importlib.import_module("llms")


def test_every_page_is_listed_once_with_its_title_and_a_sentence(llms: ModuleType) -> None:
    text = llms.llms_txt(ROOT)
    assert re.match(r"# cdc\n\n> .+\n\n", text)
    entries = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): ?(.*)$", text, re.MULTILINE)
    listed = [ROOT / path for _, path, _ in entries]
    assert len(listed) == len(set(listed))
    assert set(listed) >= PAGES
    for (title, _, sentence), path in zip(entries, listed, strict=True):
        assert path.read_text().startswith(f"# {title}\n")
        assert sentence, path
    assert text.count("\n- ") == len(entries)


def test_pages_of_inner_lists_and_titled_entries_are_listed(llms: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs" / "more").mkdir(parents=True)
    index = "# T\n\nA [link](x.md) first. More.\n\n```{toctree}\n:caption: Use\n\nShort <a>\nmore/index\n```\n"
    (tmp_path / "docs" / "index.md").write_text(index)
    (tmp_path / "docs" / "a.md").write_text("# A\n\n| t |\n\n```text\nx\n```\n\n`a` is *A*: it\nis.\n")
    (tmp_path / "docs" / "more" / "index.md").write_text("# More\n\nAll.\n\n```{toctree}\nb\n```\n")
    (tmp_path / "docs" / "more" / "b.md").write_text("# B\n\nWhat B does. And more.\n")
    assert llms.llms_txt(tmp_path) == (
        "# cdc\n\n> A link first.\n\nWith cdc installed, `cdc docs NAME` prints a page.\n\n## Use\n\n"
        "- [A](docs/a.md): `a` is *A*: it is.\n- [More](docs/more/index.md): All.\n"
        "- [B](docs/more/b.md): What B does.\n"
    )
