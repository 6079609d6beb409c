"""The pages of promises match the suites."""

from __future__ import annotations

import re

import pytest
from cdc_conformance.components import SUITES, suite_for
from cdc_conformance.promises import promises_of
from cdc_testing.imports import ROOT


@pytest.mark.parametrize("kind", SUITES)
def test_every_promise_is_on_the_page_of_its_kind_once_with_its_meaning(kind: str) -> None:
    page = (ROOT / "docs" / f"promises-{kind}s.md").read_text()
    rows = re.findall(r"^\| .+ \| (.*) \| `(test_\w+)` \|$", page, re.MULTILINE)
    assert sorted(test for _, test in rows) == sorted(promises_of(suite_for(kind)))
    assert all(meaning.rstrip(".") for meaning, _ in rows)
