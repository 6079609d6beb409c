"""Docs, errors, help, logs and docstrings use none of the words of words.toml."""

from __future__ import annotations

import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTS = tomllib.loads((ROOT / "tests" / "words.toml").read_text())
INSTEAD = {word: instead for words in LISTS.values() for word, instead in words.items()}
FORBIDDEN = re.compile("|".join(rf"(?P<w{number}>\b(?:{word})(?!\w))" for number, word in enumerate(INSTEAD)), re.I)
CODE = re.compile(r"```(?!text).*?```|`[^`\n]+`|\]\([^)]*\)|https?://\S+", re.DOTALL)
"""What is not prose of ours: code, the targets of links, addresses."""
FOLDERS = ("cdc_core", "encoders", "plugins", "sinks")
MODULES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if "tests" not in path.parts]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*/*/README.md"))]
TEMPLATES = sorted((ROOT / "cdc_core" / "web" / "page").rglob("*.html"))


def found_in(text: str) -> Iterator[str]:
    """Yield what is wrong in *text*, with what to write in its place."""
    prose = CODE.sub(lambda code: " " * len(code[0]), text)
    for match in FORBIDDEN.finditer(prose):
        word = list(INSTEAD)[int(str(match.lastgroup)[1:])] if match.lastgroup else ""
        yield f"'{match[0]}': write {INSTEAD[word]} ({text[max(0, match.start() - 30) : match.end() + 30]!r})"


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings and comments of a module."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT) or token.type == getattr(
                tokenize, "FSTRING_MIDDLE", -1
            ):
                yield token.string


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_use_no_word_of_the_list(folder: str) -> None:
    paths = [path for path in MODULES if path.is_relative_to(ROOT / folder)]
    wrong = [
        f"{path.relative_to(ROOT)}: {each}" for path in paths for text in texts_of(path) for each in found_in(text)
    ]
    assert wrong == []


def test_pages_use_no_word_of_the_list() -> None:
    paths = [*PAGES, *TEMPLATES]
    assert [f"{path.relative_to(ROOT)}: {each}" for path in paths for each in found_in(path.read_text())] == []


def test_a_word_is_found_in_prose_and_not_in_code() -> None:
    assert len(list(found_in("It was cancelled, and begins anew for ever."))) == 3
    assert list(found_in("Run `begin_anew`, or `anew`. See [it](anew.md), and renewed.")) == []
    assert list(found_in("```sql\nanew\n```\n")) == []
    assert len(list(found_in("```text\nbegins anew\n```\n"))) == 1
