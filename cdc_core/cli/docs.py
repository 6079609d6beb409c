"""`cdc docs`, and the pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from cdc_core.cli.session import debug_option
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
"""Where the pages are: in the package as it is installed, or next to it in the repository."""


@click.command
@click.argument("page", required=False)
@debug_option
def docs(page: str | None) -> None:
    """Print the documentation page PAGE in Markdown. Without PAGE, list all pages."""
    if page is not None:
        click.echo(page_text(page), nl=False)
        return
    found = pages()
    width = max(map(len, found))
    for name, path in found.items():
        click.echo(f"{name:<{width}}  {title_of(path)}")


def pages() -> Mapping[str, Path]:
    """Return the pages by name: the path in the documentation, without the suffix."""
    directory = next(place for place in _PLACES if place.is_dir())
    paths = [path.relative_to(directory) for path in directory.glob("**/*.md") if path.parent.name != "api"]
    return {path.with_suffix("").as_posix(): directory / path for path in sorted(paths)}


def page_text(name: str) -> str:
    """Return the text of a page. Raises: ConfigError when there is none of this name."""
    found = pages()
    if name not in found:
        raise ConfigError(f"there is no page '{name}'{did_you_mean(name, found)}; `cdc docs` lists all pages")
    return found[name].read_text(encoding="utf-8")


def title_of(path: Path) -> str:
    """Return the title of a page."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def search(text: str, *, limit: int) -> list[dict[str, str]]:
    """Return the sections that have the most of the words of *text*, best first: page, heading, and Markdown."""
    words = {_stem(word) for word in re.findall(r"\w+", text.lower())}
    scored = []
    for name, path in pages().items():
        for heading, section in _sections(path.read_text(encoding="utf-8")):
            title, body = ([_stem(word) for word in re.findall(r"\w+", each.lower())] for each in (heading, section))
            hits = sum((word in title) * 3 + (word in body) + body.count(word) / (len(body) + 50) for word in words)
            if hits:
                scored.append((hits, {"page": name, "heading": heading, "text": section}))
    return [found for _, found in sorted(scored, key=lambda each: -each[0])[:limit]]


def _stem(word: str) -> str:
    """Return *word* without its ending, so that `pausing` finds `pause`."""
    return re.sub(r"(?<=\w{3})(?:ing|ed|es|e|s)$", "", word)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the heading of each section, with the page's title, and its text."""
    intro, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, body = intro.partition("\n")
    title = title.removeprefix("# ")
    yield title, body.strip()
    for section in sections:
        heading, _, body = section.partition("\n")
        yield f"{title}: {heading}", body.strip()
