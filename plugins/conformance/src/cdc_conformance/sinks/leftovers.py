"""After `close`, nothing of a sink is left in its process."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from cdc_conformance.side_effects import descriptors, threads, until, watched
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_core import Timestamp

__all__ = ["Leftovers"]

_LIVES = 3


class Leftovers:
    """Promises about what remains after `close`: less than one thing for each sink that was closed.

    What a library keeps for the whole process exists after the first sink, or appears little by little.
    """

    def test_no_thread_is_left(self, rig: SinkRig, settle_s: float, allowed_threads: int) -> None:
        """The threads of a sink end with it, within `settle_s`. Executors open and close sinks for weeks."""
        grown = _growth(rig, threads, settle_s, allowed_threads)
        assert grown < _LIVES + allowed_threads, f"{_LIVES} sinks were closed and {grown} threads are left"

    def test_no_socket_is_left(self, rig: SinkRig, settle_s: float) -> None:
        """The sockets of a sink are closed with it, within `settle_s`."""
        grown = _growth(rig, lambda: descriptors()["sockets"], settle_s)
        assert grown < _LIVES, f"{_LIVES} sinks were closed and {grown} sockets are left open"

    def test_no_file_is_left_open(self, rig: SinkRig, settle_s: float) -> None:
        """The files and pipes of a sink are closed with it, within `settle_s`."""
        grown = _growth(rig, lambda: descriptors()["files"], settle_s)
        assert grown < _LIVES, f"{_LIVES} sinks were closed and {grown} files or pipes are left open"

    def test_no_temporary_file_is_left(self, rig: SinkRig, settle_s: float) -> None:
        """`close` removes what a sink wrote outside its destination: nothing cleans up an executor's disk."""
        rig.start(ORDERS)
        with watched() as effects:
            _live(rig, 0)
        outside = {path for path in effects.changed if not (rig.place and rig.place in path)}

        def left() -> list[str]:
            return sorted(path for path in outside if os.path.exists(path) and not path.startswith("/dev/"))

        until(lambda: not left(), within_s=settle_s)
        assert not left(), f"a sink was closed and its temporary files are left: {left()}"

    def test_nothing_is_printed(self, rig: SinkRig, capfd: pytest.CaptureFixture[str]) -> None:
        """A sink reports through `logging` and writes nothing to standard output or standard error."""
        rig.start(ORDERS)
        _live(rig, 0)
        printed = "".join(capfd.readouterr())
        assert not printed, f"a sink must print nothing, but it printed {printed[:300]!r}"


def _growth(rig: SinkRig, count: Callable[[], int], settle_s: float, allowed: int = 0) -> int:
    """Return how much *count* grows from one closed sink to several, when it has had time to fall again."""
    rig.start(ORDERS)
    start = count()
    _live(rig, 0)
    until(lambda: count() <= start, within_s=settle_s / 4)  # what is still ending must not count as the first sink's
    before = count()
    for number in range(1, 1 + _LIVES):
        _live(rig, number)
    until(lambda: count() < before + _LIVES + allowed, within_s=settle_s)
    return count() - before


def _live(rig: SinkRig, number: int) -> None:
    """Open and close a sink and a resolved sink."""
    rig.write(versions(range(3), at=100 * number), step=number)
    rig.resolve(Timestamp(AT.wall + 100 * number + 50))
