"""A mistake in packaging: the encoder needs a test framework."""

from __future__ import annotations

import pytest

from cdc_conformance.reference.encoder import ReferenceEncoder

__all__ = ["ImportsPytest"]


class ImportsPytest(ReferenceEncoder):
    """Shares a module with its tests."""

    skip = pytest.skip
