from __future__ import annotations

import gc
import logging
import sys

import pytest

from cdc_core.engine.worker_cache import WorkerCache


class Part:
    def __init__(self, *, fails: bool = False) -> None:
        self.closed = 0
        self._fails = fails

    def close(self) -> None:
        self.closed += 1
        if self._fails:
            raise OSError("closing failed")


def test_a_component_stays_open_between_the_slices_of_a_run() -> None:
    kept: WorkerCache[Part] = WorkerCache()
    with kept.use(("a", 1), Part) as first:
        pass
    with kept.use(("a", 1), Part) as second:
        assert second is first
    assert not first.closed


def test_components_are_keyed_by_changefeed_and_epoch() -> None:
    kept: WorkerCache[Part] = WorkerCache()
    with kept.use(("a", 1), Part) as a1, kept.use(("b", 1), Part) as b1:
        assert a1 is not b1
    with kept.use(("a", 2), Part) as a2:
        assert a2 is not a1


def test_a_newer_run_closes_what_older_ones_left() -> None:
    kept: WorkerCache[Part] = WorkerCache()
    with kept.use(("a", 1), Part) as old, kept.use(("b", 1), Part) as other:
        pass
    with kept.use(("a", 2), Part):
        assert old.closed == 1
        assert not other.closed


def test_nothing_but_new_modules_is_excluded_from_collections_of_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: WorkerCache[Part] = WorkerCache()
    excluded: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: excluded.append(1))
    for epoch in range(10):
        if epoch == 5:
            monkeypatch.setitem(sys.modules, "a_new_one", sys)
        with kept.use(("a", epoch), Part):
            assert len(excluded) <= 1 + (epoch >= 5), "what an earlier attempt has left could never be collected"
    assert excluded


def test_an_older_run_does_not_get_a_newer_ones() -> None:
    kept: WorkerCache[Part] = WorkerCache()
    with kept.use(("a", 2), Part) as newer:
        pass
    with kept.use(("a", 1), Part) as older:
        assert older is not newer
    assert not newer.closed


@pytest.mark.parametrize("error", [ValueError, GeneratorExit, KeyboardInterrupt])
def test_a_component_is_dropped_when_its_use_did_not_end_normally(error: type[BaseException]) -> None:
    kept: WorkerCache[Part] = WorkerCache()
    with pytest.raises(error), kept.use(("a", 1), Part) as failed:
        raise error
    assert failed.closed == 1
    with kept.use(("a", 1), Part) as fresh:
        assert fresh is not failed


def test_nothing_half_used_is_kept_while_it_is_in_use() -> None:
    kept: WorkerCache[Part] = WorkerCache()
    with kept.use(("a", 1), Part) as outer, kept.use(("a", 1), Part) as inner:
        assert inner is not outer


def test_the_number_of_components_is_bounded() -> None:
    kept: WorkerCache[Part] = WorkerCache(size=2)
    parts = []
    for name in "abcd":
        with kept.use((name, 1), Part) as part:
            parts.append(part)
    assert [part.closed for part in parts] == [1, 1, 0, 0]


def test_a_component_that_does_not_close_is_let_go_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    kept: WorkerCache[Part] = WorkerCache()
    caplog.set_level(logging.WARNING)
    with pytest.raises(ValueError, match="the use"), kept.use(("a", 1), lambda: Part(fails=True)):
        raise ValueError("the use")
    assert "closing Part failed" in caplog.text
    with kept.use(("a", 1), Part):
        pass


def test_nothing_is_kept_of_a_component_that_did_not_open() -> None:
    kept: WorkerCache[Part] = WorkerCache()

    def refuse() -> Part:
        raise OSError("not now")

    with pytest.raises(OSError, match="not now"), kept.use(("a", 1), refuse):
        pass
    with kept.use(("a", 1), Part):
        pass
