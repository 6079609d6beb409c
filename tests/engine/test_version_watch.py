from __future__ import annotations

from types import SimpleNamespace

import pytest

from cdc_core.engine import version_watch
from cdc_core.engine.version_watch import VersionWatch


def test_versions_have_changed_once_an_installation_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now, installed = 0.0, {"cdc-core": "1.0", "cdc-sink-null": "1.0"}
    monkeypatch.setattr(version_watch, "time", SimpleNamespace(monotonic=lambda: now))
    watch = VersionWatch(lambda: dict(installed))

    def changed(versions: dict[str, str], *, after_s: float = 60.0) -> bool:
        nonlocal now
        now += after_s
        installed.clear()
        installed.update(versions)
        return watch.has_changed()

    before, midway, after = dict(installed), {"cdc-sink-null": "1.0"}, {"cdc-core": "1.1", "cdc-sink-null": "1.1"}
    assert not changed(before)
    assert not changed(midway)
    assert not changed(after)
    assert not changed(after, after_s=59.0)
    assert changed(after, after_s=1.0)
    assert watch.first == before
    assert not changed(before), "it is back"
    assert not changed(before)
