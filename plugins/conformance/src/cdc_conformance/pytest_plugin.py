"""The pytest plugin: skips promises whose capability a plugin does not declare."""

from __future__ import annotations

import pytest

from cdc_conformance.promises import MARK, missing_capability

__all__: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}(capability, reason): the promise only holds where it is declared")


@pytest.fixture(autouse=True)
def _only_what_is_declared(request: pytest.FixtureRequest) -> None:
    if any(True for _ in request.node.iter_markers(MARK)):
        why = missing_capability(request.node, request.getfixturevalue("capabilities"))
        if why is not None:
            pytest.skip(why)
