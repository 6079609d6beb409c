"""What the tools of `cdc mcp` return."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdc_core.changefeeds.auditing import audit
from cdc_core.changefeeds.diagnosing import continues_with
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.changefeeds.tracing import Trace, checked_key, shown_change, standing_text
from cdc_core.cli.audit import figures_object
from cdc_core.cli.check import check_report
from cdc_core.cli.docs import search
from cdc_core.cli.explain import explanations, require_query
from cdc_core.cli.job_commands import by_user
from cdc_core.cli.located import Named, progress_at, resolved, state_of
from cdc_core.cli.show import since_of
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.store.event_values import KINDS
from cdc_core.store.job_values import JobRecord
from cdc_core.store.reports import Report

_POLL_S = 0.2
_MAX_EVENTS = 200
_MAX_DIFFERENCES = 50
_EVENTS_OF_A_DIAGNOSIS = 10


_CHECKING = threading.Lock()
"""Held during a check, which collects what the packages of components log in this process."""


class Tools:
    """The tools by the names of their methods, whose docstrings tell an assistant when to use them.

    Each opens the store again and returns a JSON value that is not masked yet. Called in several threads.
    Raises, everywhere: CdcError, with a sentence for the assistant.
    """

    def __init__(self, named: Named) -> None:
        self.session = named.session
        if named.file is None and named.store is None:
            named = replace(named, store=state_of(Path(), named.state)[1], state=None)
        self._named = named
        self._ended = threading.Event()
        self._directories: set[Path] = set()
        """Where audits that run have their files."""

    def for_a_call(self) -> Tools:
        """Return the tools of one call: commands in its answer are those of its changefeed."""
        own = copy(self)
        own.session = self.session.for_a_call()
        own._named = replace(self._named, session=own.session)
        return own

    def end(self) -> None:
        """Have traces end, and remove the files of audits. Called from any thread, and by handlers of signals."""
        self._ended.set()
        for directory in list(self._directories):
            shutil.rmtree(directory, ignore_errors=True)

    def list_changefeeds(self) -> dict[str, Any]:
        """List all changefeeds: their state, lag, last error, and how to continue them. Use it first to learn names.

        behind_s is how many seconds delivery is behind the source's clock. Call diagnose where something is wrong.
        """
        with self._opened() as changefeeds:
            return {"store": changefeeds.store.shown, "changefeeds": [_brief(each) for each in changefeeds.reports()]}

    def show_changefeed(self, name: str) -> dict[str, Any]:
        """Show all that is known about one changefeed: tables, query, sink, progress, totals, status, history."""
        with self._opened() as changefeeds:
            return changefeeds.report(name).to_json()

    def diagnose(self, name: str, connect: bool = False) -> dict[str, Any]:
        """Find out why a changefeed is not moving and what to do: causes with remedies, and its latest events.

        With connect, also check its plugins, options, source and sink by connecting to them, as `cdc check` does; that
        takes a few seconds, and about ten more if the changefeed has a query.
        """
        with self._opened() as changefeeds:
            found = changefeeds.diagnose(name).to_json()
            events = changefeeds.events(name, limit=_EVENTS_OF_A_DIAGNOSIS)
            found["latest_events"] = [event.to_json() for event in events]
        return {**found, "checks": self._checks(name)} if connect else found

    def list_events(
        self, name: str | None = None, since: str | None = None, kinds: Sequence[str] = (), limit: int = 50
    ) -> dict[str, Any]:
        """List what happened to a changefeed, or to all and to the nodes: starts, retries, pauses, errors, failovers.

        since is a duration such as 1h30m or a time such as 2026-05-04T10:00:00Z. At most limit events are
        returned, the latest ones.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise ConfigError(f"unknown event kind '{kind}'{did_you_mean(kind, KINDS)}")
        begin = None if since is None else since_of(since, now=datetime.now(UTC), option="since")
        with self._opened() as changefeeds:
            found = changefeeds.events(name, since=begin, kinds=kinds, limit=max(1, min(limit, _MAX_EVENTS)))
            if name is not None and not found:
                changefeeds.known(name)  # a removed one has events
        return {"events": [event.to_json() for event in found]}

    def explain(self, name: str, query: str | None = None) -> dict[str, Any]:
        """Explain the query of a changefeed: which columns and rows the source reads, what is left to Spark and why.

        With query, a SELECT over one table, explain that instead, as if the changefeed had it; nothing is changed.
        Connects to the source, and starts Spark if Spark has to evaluate something.
        """
        changefeed, *_ = self._of(name).located()
        if query is not None:
            changefeed = replace(changefeed, query=query, tables=(), table={}, written=None)
        feed = resolved(self.session, changefeed)
        require_query(feed)
        return {"tables": [each.to_json() for each in explanations(feed)]}

    def trace(
        self, name: str, table: str | None = None, key: str = "", rows: int = 1, timeout: str = "30s"
    ) -> dict[str, Any]:
        """Follow the next changes of a running changefeed from commit to sink: when each reached every stage.

        key, a JSON array of the values of a primary key such as [42], selects one row of table. The call waits for
        changes until timeout. Values of other columns are not shown.
        """
        with self._opened() as changefeeds:
            wanted = checked_key(key) if key else None  # a `str | None` would arrive as what it is in JSON
            asked = changefeeds.ask_trace(name, table=table, key=wanted, rows=rows, timeout=timeout)
            with Trace(changefeeds.store, asked) as traced:
                while not traced.over and not self._ended.wait(_POLL_S):
                    traced.poll()
            standing = standing_text(changefeeds.store, changefeeds.known(name))
        return {"changes": [shown_change(change) for change in traced.changes], "changefeed": standing}

    def audit(self, name: str, wait_s: float | None = None) -> dict[str, Any]:
        """Compare all rows that a changefeed has delivered with its source: counts, and keys of rows that differ.

        Reads both sides completely: ask before you audit large tables. wait_s is how long to wait for a resolved
        mark. Differing columns are named, but their values are not shown.
        """
        feed, _, url = self._of(name).resolved()
        with self._directory() as directory:
            with progress_at(url) as progress:
                found = audit(progress, feed, directory, at=None, wait_s=wait_s, most_shown=_MAX_DIFFERENCES)
            differences = [
                {
                    "table": each.table.full,
                    "finding": str(each.finding),
                    "key": {column: str(value) for column, value in each.key.items()},
                    "columns": list(each.source),
                }
                for each in found.differences()
            ]
        return {**figures_object(found.figures), "differences": differences}

    def search_docs(self, words: str, limit: int = 5) -> dict[str, Any]:
        """Search the documentation of cdc: options, errors, settings of sources and sinks, how-to. Returns sections.

        Every page is also a resource: cdc-docs:///PAGE.
        """
        return {"sections": search(words, limit=max(1, min(limit, 20)))}

    def pause_changefeed(self, name: str) -> dict[str, Any]:
        """Pause a changefeed after its running step. Until it is resumed, its source retains history."""
        with self._opened() as changefeeds:
            return self._changed(changefeeds, changefeeds.pause(name, _reason()))

    def resume_changefeed(self, name: str) -> dict[str, Any]:
        """Resume a paused changefeed, or one that an error has stopped, from where it stopped. Fix the cause first."""
        with self._opened() as changefeeds:
            return self._changed(changefeeds, changefeeds.resume(name, _reason()))

    def restart_changefeed(self, name: str) -> dict[str, Any]:
        """Restart a job after its running step. One that an error has stopped runs again."""
        with self._opened() as changefeeds:
            return self._changed(changefeeds, changefeeds.restart(name, _reason()))

    def _changed(self, changefeeds: Changefeeds, job: JobRecord) -> dict[str, Any]:
        return _brief(changefeeds.report(job.name))

    def _checks(self, name: str) -> dict[str, Any]:
        feed, _, url = self._of(name).resolved()
        by_file = self._named.store is None
        with _CHECKING, progress_at(url) as progress:
            return check_report(self.session, feed, None, progress, by_file=by_file, as_json=True).to_json()

    def _of(self, name: str) -> Named:
        """Return the changefeed, defined in the store or in the file."""
        return replace(self._named, name=name) if self._named.store is None else replace(self._named, file=name)

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="cdc-audit-", ignore_cleanup_errors=True) as name:
            self._directories.add(directory := Path(name))
            try:
                yield directory
            finally:
                self._directories.discard(directory)

    @contextmanager
    def _opened(self) -> Iterator[Changefeeds]:
        with self._named.read() as (changefeeds, _):
            yield changefeeds


def _reason() -> str:
    return f"{by_user()}, over MCP"


def _brief(found: Report) -> dict[str, Any]:
    shown = found.to_json()
    names = ("name", "state", "tables", "sink", "behind_s", "dead_letters", "waiting_on", "retrying")
    error = shown["error"] or (shown["paused"] or {}).get("reason")
    if found.job is not None and found.job.rests_for_error:
        error = found.job.reason
    return {**{name: shown[name] for name in names}, "error": error, "remedy": continues_with(found) or None}
