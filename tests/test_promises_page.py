"""The page of promises matches the suites."""

from __future__ import annotations

import re

from cdc_conformance.components import SUITES, suite_for
from cdc_conformance.promises import promises_of
from cdc_testing.imports import ROOT


def test_every_promise_is_on_the_page_once_with_its_meaning() -> None:
    page = (ROOT / "docs" / "promises.md").read_text()
    rows = re.findall(r"^\| .+ \| (.*) \| `(test_\w+)` \|$", page, re.MULTILINE)
    assert sorted(test for _, test in rows) == sorted(name for kind in SUITES for name in promises_of(suite_for(kind)))
    assert all(meaning.rstrip(".") for meaning, _ in rows)
