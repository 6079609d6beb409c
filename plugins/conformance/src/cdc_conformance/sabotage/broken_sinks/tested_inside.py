"""A mistake in packaging: the sink needs a test framework."""

from __future__ import annotations

import pytest

from cdc_conformance.reference.sink import ReferenceSink

__all__ = ["ImportsPytest"]


class ImportsPytest(ReferenceSink):
    """Shares a module with its tests."""

    approximately = staticmethod(pytest.approx)
