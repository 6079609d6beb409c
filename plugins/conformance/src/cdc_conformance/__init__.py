"""Proves that plugins for `cdc_core` keep their promises.

Inherit from the suite of your plugin's kind in a test module; pytest finds the rest. Public is what this module
exports.
"""

import pytest

pytest.register_assert_rewrite("cdc_conformance")

from cdc_conformance.promises import requires  # noqa: E402

__all__ = ["requires"]
