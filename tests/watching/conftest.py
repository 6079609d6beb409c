"""The installed plugins, found once: many of these tests ask for them, and each search reads all distributions."""

from __future__ import annotations

from functools import cache

import pytest

from cdc_core.plugins.host import PluginHost

_loaded = cache(PluginHost.load)


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PluginHost, "load", _loaded)
