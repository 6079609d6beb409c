"""What earlier attempts may still be doing, and how the next one waits for it to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.fencing import CHECK_VALID_S, await_idle
from cdc_core.engine.run_control import RunControl, Stopped

_POLL_S = 0.25


class PreviousAttempts:
    """Earlier attempts of changefeed *name*, as one run sees them. Used by its thread.

    *after_unclean* says that another node ran the changefeed before, and did not say that it had stopped. *say* shows
    changes of the status, *control* ends every wait with `Stopped`.
    """

    def __init__(
        self, name: str, state_dir: Path, *, after_unclean: bool, say: Callable[..., None], control: RunControl
    ) -> None:
        self._owner = f"changefeed '{name}'"
        self._lock = state_dir / f"{name}.tasks.lock"
        self._unclean = after_unclean
        self._say = say
        self._control = control
        self._fenced_since: float | None = None

    def fenced(self) -> None:
        """Note that a newer attempt has begun, so that theirs begin no call of the sink anymore."""
        if self._fenced_since is None:
            self._fenced_since = time.monotonic()

    def lost(self) -> None:
        """Note that Spark gave up the last attempt, whose tasks on other hosts may be in a call of the sink."""
        self._unclean, self._fenced_since = True, None

    def await_tasks(self) -> None:
        """Return when no task of theirs is alive on this host. Raises: Stopped; RetryableError after a minute."""

        def pause(seconds: float) -> None:
            self._wait("waiting for tasks of an earlier attempt to end", seconds)

        await_idle(self._lock, owner=self._owner, pause=pause)

    def await_calls(self, feed: ResolvedChangefeed, *, scans: bool, moved: bool) -> None:
        """Return when calls of the sink that another node, or an attempt that was `lost`, began have had their time to
        end. Once for each.

        Only when the attempt *scans*, or is the first one since the changefeed was *moved*. Otherwise rows that such a
        call delivers late are repeats, but rows of a scan, and those that a move leaves out, can be old versions that
        were never delivered. Raises: Stopped.
        """
        if not (self._unclean and (scans or moved)):
            return
        assert self._fenced_since is not None, "fenced() comes first"
        destination = Parts(feed).open_destination()
        try:
            until = self._fenced_since + CHECK_VALID_S + destination.longest_call_s()
        finally:
            destination.close()
        while (left := until - time.monotonic()) > 0:
            self._wait("waiting for calls of the earlier node to end", min(left, _POLL_S))
        self._unclean = False

    def _wait(self, phase: str, seconds: float) -> None:
        self._say(phase=phase)
        if self._control.stop.wait(seconds):
            raise Stopped
