"""Rangefeeds that check, start, restart, move, release, close and drop wrongly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_rangefeeds.parts import BrokenHistory, BrokenRangefeed, BrokenReader, SharedSource
from cdc_conformance.simulated.source import SimulatedOptions, SimulatedToken, is_intent
from cdc_core import (
    ConfigError,
    Frontier,
    HistoryLostError,
    Move,
    RangefeedContext,
    RetryableRangefeedError,
    RowBatch,
    ScanProgress,
    Slice,
    SourceObjects,
    Span,
    SpanMark,
    TableSchema,
    TerminalRangefeedError,
    Timestamp,
    Token,
)
from cdc_core.options import option

Save = Callable[[Token], None]

_cut_off: set[str] = set()


@mistakes
class Rangefeeds(BrokenRangefeed):
    @breaks("test_check_changes_nothing", "check")
    def prepares_in_check(self) -> None:
        """Prepares the source while it checks it."""
        super().check()
        source = self.source
        if source.feed not in source.database.protected():
            source.database.protect(source.feed, source.database.now)

    @breaks("test_check_names_a_missing_table", "check")
    def checks_no_tables(self) -> None:
        """Checks the source but not the tables."""
        try:
            super().check()
        except ConfigError:
            if not self.source.database.exists:
                raise

    @breaks("test_check_refuses_an_unreachable_source", "check")
    def raises_client_errors(self) -> None:
        """Raises the errors of its client library."""
        if not self.source.database.exists:
            raise FileNotFoundError(2, "No such file or directory", str(self.source.database.directory))
        super().check()

    @breaks("test_schemas_describe_the_tables", "schemas")
    def keyless_schemas(self) -> Sequence[TableSchema]:
        """Describes tables without their primary keys."""
        return [replace(schema, primary_key=()) for schema in super().schemas()]

    @breaks("test_secrets_are_masked", "__repr__")
    def shows_its_uri(self) -> str:
        """Shows the URI in its `repr`."""
        return f"ShowsItsUri({self.context.uri!r})"

    @breaks("test_without_an_initial_scan_only_later_changes_arrive", "__init__")
    def always_scans(self, context: RangefeedContext) -> None:
        """Ignores `initial_scan`."""
        super().__init__(replace(context, initial_scan=True))

    @breaks("test_scan_progress_rises_until_the_scan_is_complete", "scan_progress")
    def counts_down(self, token: Token) -> ScanProgress | None:
        """Reports the rest of the scan as done."""
        found = super().scan_progress(token)
        return found and replace(found, done=found.total - found.done)

    @breaks("test_restarts_lose_no_rows", "start")
    def forgets_the_scan(self, saved: Token | None, save: Save) -> Token:
        """Ignores the rest of the initial scan after a restart."""
        token = super().start(saved, save)
        return token if saved is None or is_intent(saved) or self.backfills(token) else {**token, "scan": None}

    @breaks("test_a_backfill_is_complete_whatever_was_killed", "start")
    def forgets_the_backfill(self, saved: Token | None, save: Save) -> Token:
        """Follows the log after a restart, although the saved token holds the rest of a backfill."""
        token = super().start(saved, save)
        return {**token, "scan": None} if saved is not None and self.backfills(token) else token

    @breaks("test_restarts_keep_the_order_of_keys", "start")
    def renews_the_snapshot(self, saved: Token | None, save: Save) -> Token:
        """Takes a new snapshot for the rest of the initial scan, but reads the log from where it was."""
        token = super().start(saved, save)
        if saved is None or token["scan"] is None or self.backfills(token):
            return token
        at = self.source.database.begin_reading(self.source.feed)
        return {**token, "scan": {**token["scan"], "at": str(at)}}

    @breaks("test_a_crash_during_start_is_recovered", "start")
    def treats_an_intent_as_a_token(self, saved: Token | None, save: Save) -> Token:
        """Assumes after a crash that the start was complete."""
        token = super().start(saved, save)
        return {**token, "scan": None} if saved is not None and is_intent(saved) else token

    @breaks("test_nothing_is_created_before_the_intent_is_saved", "start")
    def creates_before_it_saves(self, saved: Token | None, save: Save) -> Token:
        """Saves its intent after it has created something."""
        if saved is None:
            self.source.database.begin_reading(self.source.feed)
        return super().start(saved, save)

    @breaks("test_lost_history_is_an_error", "start")
    def starts_from_the_oldest_history(self, saved: Token | None, save: Save) -> Token:
        """Starts from the oldest history that exists if the history after the saved token is lost."""
        try:
            return super().start(saved, save)
        except HistoryLostError:
            assert saved is not None
            return super().start(self.at(saved, self.source.cluster.gc_threshold), save)

    @breaks("test_a_cursor_yields_the_changes_after_it", "start")
    def starts_now_instead_of_at_the_cursor(self, saved: Token | None, save: Save) -> Token:
        """Checks the cursor, and starts at the present."""
        token = super().start(saved, save)
        at_cursor = saved is None and self.context.cursor is not None
        return self.at(token, self.source.cluster.high) if at_cursor else token

    @breaks("test_a_cursor_is_refused_when_changes_after_it_are_gone", "start")
    def starts_at_the_oldest_history(self, saved: Token | None, save: Save) -> Token:
        """Starts at the oldest history when the cursor is older."""
        cursor, oldest = self.context.cursor, self.source.cluster.gc_threshold
        if cursor is not None and Timestamp.parse(cursor) < oldest:
            self.context = replace(self.context, cursor=str(oldest))
        return super().start(saved, save)

    @breaks("test_an_outage_loses_no_rows", "start")
    def skips_ahead_after_an_outage(self, saved: Token | None, save: Save) -> Token:
        """Continues from the present when it connects again after an outage."""
        token = super().start(saved, save)
        if saved is None or self.context.uri not in _cut_off:
            return token
        _cut_off.remove(self.context.uri)
        return self.at(token, self.source.cluster.high)

    @breaks("test_a_move_to_now_leaves_out_what_was_committed_before_and_nothing_else", "move")
    def moves_nowhere(self, saved: Token, to: str | Token) -> Move:
        """Says that it has moved, and continues where it was."""
        return replace(super().move(saved, to), token=saved)

    @breaks("test_a_move_into_the_future_is_refused", "move")
    def moves_into_the_future(self, saved: Token, to: str | Token) -> Move:
        """Takes every time."""
        try:
            return super().move(saved, to)
        except ConfigError:
            if isinstance(to, str) and Timestamp.is_text(to):
                return super().move(saved, "now")
            raise

    @breaks("test_changefeeds_on_one_source_are_independent", "__init__")
    def shares_its_slot(self, context: RangefeedContext) -> None:
        """Keeps history under a name that all changefeeds of the source share."""
        super().__init__(context)
        self.source = CommonSlot(context)

    @breaks("test_nothing_stays_open_after_close", "schemas")
    def leaves_files_open(self) -> Sequence[TableSchema]:
        """Opens a file in each call of `schemas` and never closes it."""
        os.open(os.devnull, os.O_RDONLY)
        return super().schemas()

    @breaks("test_drop_may_be_repeated", "drop")
    def drops_once(self, saved: Token | None) -> None:
        """Raises an error if there is nothing to drop."""
        if self.source.feed not in self.source.database.protected():
            raise TerminalRangefeedError(f"changefeed {self.source.feed} keeps no history of the source")
        super().drop(saved)

    @breaks("test_drop_removes_everything_created", "drop")
    def drops_nothing(self, saved: Token | None) -> None:
        """Leaves everything that it created on the source."""

    @breaks("test_a_temporary_run_leaves_nothing_behind", "close")
    def outlives_a_temporary_run(self) -> None:
        """Leaves what it created when a temporary run ends."""
        self.source.close()

    @breaks("test_created_lists_the_objects_of_every_changefeed", "created")
    def lists_its_own_objects(self) -> Sequence[SourceObjects]:
        """Lists only what this changefeed has created."""
        return [entry for entry in super().created() if entry.feed_id == self.source.feed]

    def at(self, token: Token, timestamp: Timestamp) -> Token:
        """Return *token* with all tables read up to *timestamp*."""
        frontier = Frontier([Span(name) for name in self.source.names], timestamp)
        return replace(SimulatedToken.from_token(token), frontier=frontier).to_token()


@mistakes
class Histories(BrokenHistory):
    last = Timestamp()

    @breaks("test_metrics_are_finite_numbers", "metrics")
    def reports_nan(self) -> Mapping[str, float]:
        """Reports NaN for a gauge that is not known yet."""
        return {**super().metrics(), "lag_s": float("nan")}

    @breaks("test_release_may_be_skipped_repeated_and_late", "release")
    def refuses_old_tokens(self, token: Token) -> None:
        """Raises an error for a token that is older than the last one."""
        needed = SimulatedToken.from_token(token).needed
        if needed < self.last:
            raise TerminalRangefeedError(f"history was released up to {self.last}, and {needed} is older")
        self.last = needed
        super().release(token)

    @breaks("test_history_after_a_released_token_is_kept", "release")
    def releases_up_to_now(self, token: Token) -> None:
        """Releases everything up to now instead of everything before the token."""
        super().release(token)
        self.source.database.protect(self.source.feed, self.source.database.now)

    @breaks("test_released_history_is_discarded", "release")
    def never_releases(self, token: Token) -> None:
        """Ignores `release`."""

    @breaks("test_changefeeds_on_one_source_are_independent", "__init__")
    def shares_its_slot_history(self, context: RangefeedContext) -> None:
        """The coordinator's part of `SharesItsSlot`."""
        super().__init__(context)
        self.source = CommonSlot(context)


class CommonSlot(SharedSource):
    """Keeps the history of all changefeeds under one name."""

    @property
    def feed(self) -> str:
        return "cdc"


@mistakes
class Readers(BrokenReader):
    @breaks("test_an_outage_loses_no_rows", "read")
    def skips_ahead_after_an_outage_reader(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """The reader of `SkipsAheadAfterAnOutage`."""
        try:
            yield from super().read(slice_)
        except RetryableRangefeedError:
            _cut_off.add(self.context.uri)
            raise


@breaks("test_constructors_have_no_side_effects")
class ConnectsInTheConstructor(BrokenReader):
    """Opens a file in its constructor."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._file: int | None = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        super().close()


@breaks("test_options_are_documented")
@dataclass(frozen=True, slots=True, kw_only=True)
class UndocumentedOption(SimulatedOptions):
    """Has an option without documentation."""

    hurry: bool = option(False, doc="")
