"""A Sphinx extension that publishes llms.txt (https://llmstxt.org) at the root of the site, with the pages it lists.

It is made from the lists of pages in docs/index.md, so it is as current as the site.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def llms_txt(root: Path) -> str:
    """Return llms.txt of *root*/docs: every page in the lists of its index, by caption, with a sentence of the page."""
    index = (root / "docs" / "index.md").read_text(encoding="utf-8")
    sections = [
        f"## {caption}\n\n{''.join(map(_entry, pages))}" for caption, pages in _lists(root / "docs" / "index.md")
    ]
    head = f"# cdc\n\n> {_first_sentence(index)}\n\nWith cdc installed, `cdc docs NAME` prints a page."
    return "\n".join([f"{head}\n", *sections]).replace(f"]({root}/", "](")


def listed_pages(root: Path) -> list[Path]:
    """Return the pages that llms.txt lists."""
    return [page for _, pages in _lists(root / "docs" / "index.md") for page in pages]


def _lists(page: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each list of pages on *page* with its caption. Pages that only the site can render are left out."""
    for block in _TOCTREE.findall(page.read_text(encoding="utf-8")):
        *_, caption = re.findall(r"^:caption: (.*)$", block, re.MULTILINE) or ["Pages"]
        names = [line for line in block.splitlines() if line and not line.startswith(":")]
        found = [path for name in names for path in sorted(page.parent.glob(f"{_target(name)}.md"))]
        pages = [path.resolve() for path in found if path.parent.name != "api"]
        inner = [each for path in pages if path.name == "index.md" for _, more in _lists(path) for each in more]
        yield caption, [*pages, *(each for each in inner if each not in pages)]


def _target(name: str) -> str:
    return re.sub(r"^.*<(.*)>$", r"\1", name)


def _entry(page: Path) -> str:
    title, _, text = page.read_text(encoding="utf-8").partition("\n")
    return f"- [{title.removeprefix('# ')}]({page}): {_first_sentence(text)}\n"


def _first_sentence(text: str) -> str:
    """Return the first sentence of a page, without links; empty when it begins with a table or a list."""
    paragraphs = (" ".join(each.split()) for each in re.split(r"\n\s*\n", _FENCED.sub("", text)))
    prose = next((each for each in paragraphs if each and each[0] not in "#|:<!"), "")
    return re.split(r"(?<=[.?])\s", _LINK.sub(r"\1", prose), maxsplit=1)[0]


def _publish(app: Any, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    root, site = Path(app.srcdir), Path(app.outdir)
    (site / "llms.txt").write_text(llms_txt(root), encoding="utf-8")
    for page in listed_pages(root):
        shutil.copyfile(page, site / page.relative_to(root))


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", _publish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
