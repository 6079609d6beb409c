"""`cdc docs` prints the pages that messages name, also where only the wheel is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cdc_testing.command import Cdc

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PATHS = sorted(path.relative_to(DOCS) for path in DOCS.glob("**/*.md") if path.parent.name != "api")
PAGES = [path.with_suffix("").as_posix() for path in PATHS]


def test_every_page_is_listed_with_its_title(cdc: Cdc) -> None:
    lines = cdc("docs").out.splitlines()
    assert [line.split()[0] for line in lines] == PAGES
    assert all(len(line.split()) > 1 for line in lines)


def test_a_page_is_printed_as_it_is(cdc: Cdc) -> None:
    assert cdc("docs", "write-a-sink").out == (DOCS / "write-a-sink.md").read_text()


def test_an_unknown_page_is_refused_with_a_suggestion(cdc: Cdc) -> None:
    assert "there is no page 'write-sink'; did you mean 'write-a-sink'?" in cdc.refused("docs", "write-sink")


@pytest.mark.parametrize("folder", ["cdc_core", "encoders", "sinks", "plugins"])
def test_messages_and_readmes_name_pages_that_exist(folder: str) -> None:
    paths = [path for suffix in ("py", "md") for path in (ROOT / folder).rglob(f"*.{suffix}")]
    files = [path for path in paths if "tests" not in path.parts]
    named = {name for path in files for name in re.findall(r"`cdc docs ([a-z/-]+)`", path.read_text())}
    assert named <= set(PAGES)
