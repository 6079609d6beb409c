"""Previews for servers: a few at a time, and without Spark in the server's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from cdc_core.changefeeds.finding import Finder
from cdc_core.changefeeds.preview_process import preview_apart
from cdc_core.store.verbs import BusyError
from cdc_core.watching.preview import Previewed, preview

__all__ = ["Previewing"]

_places = threading.BoundedSemaphore(2)
"""Each preview reads the source for itself."""
_place_apart = threading.BoundedSemaphore(1)
"""A preview of a query takes a Spark of its own."""


class Previewing(Finder):
    """The verb preview, of a job."""

    def preview(self, name: str, rows: int, *, is_gone: Callable[[], bool]) -> list[Previewed]:
        """Return the messages that the job would send for so many *rows* of its tables. Sends and saves nothing.

        With a query, or sections of tables, this takes several seconds; it ends early once *is_gone* says that the
        client has left. Raises: BusyError; ConfigError; what the source raises; TerminalError when it takes too long.
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
            with closing(preview(feed, rows=rows, live=False)) as found:
                return list(found)
        finally:
            places.release()
