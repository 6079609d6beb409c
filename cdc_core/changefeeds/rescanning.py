"""Reading tables again: while changes continue, or with a new history at the source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from cdc_core.changefeeds.finding import Finder, stopped
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import check_source, source_clock, with_saved
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.rangefeed_values import Rescan
from cdc_core.schema import TableSchema
from cdc_core.sql_names import meant_tables
from cdc_core.store.job_rows import found_job
from cdc_core.store.rescans import ask_rescan
from cdc_core.store.verbs import Verb, require


class Rescanning(Finder):
    """The verb rescan. For a job, *feed* is its definition in the store."""

    def rescan(self, feed: ResolvedChangefeed, *, table: str | None, where: str | None = None) -> Rescan:
        """Request that *table*, in any form of its name, or all tables be emitted again; return the request.

        A running changefeed begins within about a second; otherwise, the next run does. *where*, in the source's SQL,
        limits the request to rows that it selects. Raises: ConfigError, also if the source cannot do this; errors of
        the source.
        """
        self.find_job(feed.name, verb="rescan")
        feed = with_saved(self._rescannable(feed), self.store)
        wanted = Rescan(table=None if table is None else _found(check_source(feed), table), where=where)
        with closing(Parts(feed).open_planner()) as planner:
            planner.check_rescan(wanted)
        self._ask(feed.name, "rescan", wanted)
        return wanted

    def begin_anew(self, feed: ResolvedChangefeed, *, state_dir: Path | None = None) -> None:
        """Let the next run abandon the history that the source retains, and begin with all rows of all tables.

        The changefeed must not be running; if it is not a job, no run can begin from *state_dir* in the meantime.
        Raises: ConfigError; errors of the source.
        """
        self.find_job(feed.name, verb="move")
        feed = self._rescannable(feed)
        with nullcontext() if state_dir is None else stopped(self.store, feed.name, state_dir):
            check_source(feed)
            self._ask(feed.name, "move", Rescan(table=None), new_slot=True)

    def _rescannable(self, feed: ResolvedChangefeed) -> ResolvedChangefeed:
        """Return *feed*, for the attempt that the store knows, if its tables can be scanned again."""
        known = self.known(feed.name)
        if self.store.progress.load(feed.name) is None:
            raise ConfigError(f"changefeed '{feed.name}' has not started yet; its first run reads all tables")
        if feed.options.initial_scan == "only":
            raise ConfigError(
                f"changefeed '{feed.name}' only scans its tables, and only once; to scan them again, choose"
                " another name"
            )
        feed = feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch)
        end = feed.options.end
        if end is not None and end <= source_clock(feed):
            raise ConfigError(
                f"changefeed '{feed.name}' ends at end_time, {end}, and the contents of its tables at that time can no"
                " longer be read; to scan the tables now, choose another name"
            )
        return feed

    def _ask(self, name: str, verb: Verb, wanted: Rescan, *, new_slot: bool = False) -> None:
        with self.store.transaction() as connection:
            require(found_job(connection, name, locked=True), verb)
            ask_rescan(connection, name, table=wanted.table, where=wanted.where, new_slot=new_slot)


def _found(schemas: Sequence[TableSchema], text: str) -> str:
    """Return the full name of the watched table that *text* names. Raises: ConfigError."""
    found = meant_tables(text, (schema.name for schema in schemas))
    if not found:
        watched = [schema.name.qualified if "." in text else schema.name.table for schema in schemas]
        raise ConfigError(f"the changefeed has no table '{text}'{did_you_mean(text, watched)}")
    if len(found) > 1:
        raise ConfigError(f"table '{text}' may be {' or '.join(map(str, found))}; write one of these names")
    return found[0].full
