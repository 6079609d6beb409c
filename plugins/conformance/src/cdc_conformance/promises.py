"""What the suites share: a promise is a test method, its name the promise and its docstring the contract."""

from __future__ import annotations

from collections.abc import Collection

import pytest

__all__ = ["MARK", "missing_capability", "requires"]

MARK = "cdc_requires"
"""Name of the marker that `requires` puts on a test."""


def requires(capability: str, reason: str) -> pytest.MarkDecorator:
    """Run the test only for plugins that declare *capability*; *reason* says what the test needs it for.

    Without it the test is reported as skipped, with the capability and the reason.
    """
    mark: pytest.MarkDecorator = getattr(pytest.mark, MARK)
    return mark(capability, reason)


def missing_capability(item: pytest.Item, declared: Collection[str]) -> str | None:
    """Return why *item* cannot run with the *declared* capabilities, None when it can."""
    for mark in item.iter_markers(MARK):
        capability, reason = mark.args
        if capability not in declared:
            return f"needs the capability '{capability}', which is not declared: {reason}"
    return None
