"""Previews for servers: a few at a time, and without Spark in the server's process.

What Spark evaluates is in a process of its own, with which it ends.
"""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from cdc_core.changefeeds.finding import Finder
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.ipc import line, outcome_of, packed, read_lines
from cdc_core.engine.process_session import reap
from cdc_core.errors import TerminalError
from cdc_core.store.verbs import BusyError
from cdc_core.telemetry.logs import logged_as
from cdc_core.watching.preview import Previewed, preview

log = logging.getLogger(__name__)

MAX_BYTES = 16 * 2**20
"""How large all messages of one preview may be."""
_LIMIT_S = 120.0
_POLL_INTERVAL_S = 0.2


def preview_apart(feed: ResolvedChangefeed, *, rows: int, is_gone: Callable[[], bool]) -> list[Previewed]:
    """Return the messages of *rows* rows of *feed*, as `preview` does, from a child process.

    On return, also when this raises, the process and all that it has started have ended, and their files are gone. It
    gets the feed, secrets included, through a pipe. When this process ends, however that happens, the other one removes
    these files and ends by itself. *is_gone* is asked several times a second whether the client has left.

    Raises: what `preview` raises; TerminalError when the process takes too long, sends too much, or ends too early, and
    when *is_gone* says so.
    """
    with TemporaryDirectory(prefix="cdc-preview-", ignore_cleanup_errors=True) as scratch:
        log_path = Path(scratch) / "log"
        with _started(scratch, log_path) as process:
            job = line(feed=packed(feed), rows=rows, scratch=scratch)
            output = _exchange(process, job, is_gone=is_gone)
        *messages, end = list(read_lines(BytesIO(output))) or [{}]  # without a line that it has not finished
        if "outcome" not in end:
            last = log_path.read_text(errors="replace").strip().rpartition("\n")[2]
            log.warning("a preview of '%s' ended with status %s: %s", feed.name, process.returncode, last)
            raise TerminalError("its process ended early; the server's log shows its last output")
        outcome = outcome_of(end)
        if outcome.error is not None:
            raise outcome.error
        return [Previewed(**each) for each in messages]


@contextmanager
def _started(scratch: str, log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the child process, whose temporary files are in *scratch*; nothing of it is left afterwards."""
    with log_path.open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cdc_core.changefeeds.preview_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            env={**os.environ, "TMPDIR": scratch},
            start_new_session=True,  # see `reap`
        )
    try:
        yield process
    finally:
        reap(process)


def _exchange(process: subprocess.Popen[bytes], job: bytes, *, is_gone: Callable[[], bool]) -> bytes:
    """Send *job*, and return all that the process has sent until its end. Raises: TerminalError."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def send() -> None:
        with suppress(BrokenPipeError):  # it has ended, as its other pipe will say
            stdin.write(job)
            stdin.flush()  # the pipe stays open: its end would end the process

    def read() -> None:
        found.put(stdout.read(MAX_BYTES + 1))

    for work in (send, read):  # both end with the process
        threading.Thread(target=work, daemon=True).start()
    until = time.monotonic() + _LIMIT_S
    while (left_s := until - time.monotonic()) > 0:
        if is_gone():
            raise TerminalError("the client has disconnected")
        with suppress(queue.Empty):
            output = found.get(timeout=min(left_s, _POLL_INTERVAL_S))
            if len(output) > MAX_BYTES:
                raise TerminalError(f"its messages have more than {MAX_BYTES >> 20} MiB; ask for fewer rows")
            return output
    raise TerminalError(f"it took longer than {_LIMIT_S:g} s; use `cdc preview`, which has no time limit")


_places = threading.BoundedSemaphore(2)
"""Each preview reads the source for itself."""
_place_apart = threading.BoundedSemaphore(1)
"""A preview of a query takes a Spark of its own."""


class Previewing(Finder):
    """The verb preview, for jobs."""

    def preview(self, name: str, rows: int, *, is_gone: Callable[[], bool]) -> list[Previewed]:
        """Return the messages that the job would send for *rows* rows of its tables. Sends and saves nothing.

        With a query, or sections of tables, this takes several seconds. It ends early if *is_gone* says that the client
        has disconnected. Raises: BusyError; ConfigError; errors of the source; TerminalError if it takes too long.
        """
        self.require_job(name)
        feed = self.feed(name, self.known(name).definition)
        evaluated = feed.queries().exist
        places = _place_apart if evaluated else _places
        if not places.acquire(blocking=False):
            made = "a preview of a query is" if evaluated else "two previews are"
            raise BusyError(f"{made} running; try again in a few seconds")
        try:
            if evaluated:
                return preview_apart(feed, rows=rows, is_gone=is_gone)
            with logged_as(name), closing(preview(feed, rows=rows, live=False)) as found:
                return list(found)
        finally:
            places.release()
