"""Rangefeeds that start, restart, release, close and drop wrongly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from cdc_conformance.sabotage.broken_rangefeeds.parts import (
    BrokenHistory,
    BrokenPlanner,
    BrokenRangefeed,
    BrokenReader,
    SharedSource,
)
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_conformance.simulated.tokens import SimulatedToken, is_intent
from cdc_core import (
    ConfigError,
    Frontier,
    HistoryLostError,
    RangefeedContext,
    RetryableRangefeedError,
    RowBatch,
    Slice,
    SourceObjects,
    Span,
    SpanMark,
    StepLimit,
    TableSchema,
    TerminalRangefeedError,
    Timestamp,
    Token,
)
from cdc_core.options import option

Save = Callable[[Token], None]


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


class PreparesInCheck(BrokenRangefeed):
    """Prepares the source while it checks it."""

    def check(self) -> None:
        super().check()
        source = self.source
        if source.feed not in source.database.protected():
            source.database.protect(source.feed, source.database.now)


class ChecksNoTables(BrokenRangefeed):
    """Checks the source but not the tables."""

    def check(self) -> None:
        try:
            super().check()
        except ConfigError:
            if not self.source.database.exists:
                raise


class RaisesClientErrors(BrokenRangefeed):
    """Raises the errors of its client library."""

    def check(self) -> None:
        if not self.source.database.exists:
            raise FileNotFoundError(2, "No such file or directory", str(self.source.database.directory))
        super().check()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndocumentedOption(SimulatedOptions):
    """Has an option without documentation."""

    hurry: bool = option(False, doc="")


class ShowsItsUri(BrokenRangefeed):
    """Shows the URI in its `repr`."""

    def __repr__(self) -> str:
        return f"ShowsItsUri({self.context.uri!r})"


class ReportsNaN(BrokenHistory):
    """Reports NaN for a gauge that is not known yet."""

    def metrics(self) -> Mapping[str, float]:
        return {**super().metrics(), "lag_s": float("nan")}


class ForgetsTheScan(BrokenRangefeed):
    """Ignores the rest of the initial scan after a restart."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        return token if saved is None or is_intent(saved) or self.backfills(token) else {**token, "scan": None}


class RenewsTheSnapshot(BrokenRangefeed):
    """Takes a new snapshot for the rest of the initial scan, but reads the log from where it was."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        if saved is None or token["scan"] is None or self.backfills(token):
            return token
        at = self.source.database.begin_reading(self.source.feed)
        return {**token, "scan": {**token["scan"], "at": str(at)}}


class TreatsAnIntentAsAToken(BrokenRangefeed):
    """Assumes after a crash that the start was complete."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        return {**token, "scan": None} if saved is not None and is_intent(saved) else token


class CreatesBeforeItSaves(BrokenRangefeed):
    """Saves its intent after it has created something."""

    def start(self, saved: Token | None, save: Save) -> Token:
        if saved is None:
            self.source.database.begin_reading(self.source.feed)
        return super().start(saved, save)


class TuplesInTokens(BrokenPlanner):
    """Puts a tuple into its tokens, which JSON turns into a list."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        end = super().advance(start, after=after, limit=limit)
        return start if end is start else {**end, "names": tuple(self.source.names)}


class UriInTokens(BrokenPlanner):
    """Puts the source's URI into its tokens."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        end = super().advance(start, after=after, limit=limit)
        return start if end is start else {**end, "source": self.context.uri}


class ReleasesInAdvance(BrokenPlanner):
    """Releases the history before the start of each step that it plans."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        BrokenHistory(self.context).release(start)
        return super().advance(start, after=after, limit=limit)


class RefusesOldTokens(BrokenHistory):
    """Raises an error for a token that is older than the last one."""

    _last = Timestamp()

    def release(self, token: Token) -> None:
        needed = SimulatedToken.from_token(token).needed
        if needed < self._last:
            raise TerminalRangefeedError(f"history was released up to {self._last}, and {needed} is older")
        self._last = needed
        super().release(token)


class ReleasesUpToNow(BrokenHistory):
    """Releases everything up to now instead of everything before the token."""

    def release(self, token: Token) -> None:
        super().release(token)
        self.source.database.protect(self.source.feed, self.source.database.now)


class StartsFromTheOldestHistory(BrokenRangefeed):
    """Starts from the oldest history that exists if the history after the saved token is lost."""

    def start(self, saved: Token | None, save: Save) -> Token:
        try:
            return super().start(saved, save)
        except HistoryLostError:
            assert saved is not None
            left = Frontier([Span(name) for name in self.source.names], self.source.cluster.gc_threshold)
            return super().start(replace(SimulatedToken.from_token(saved), frontier=left).to_token(), save)


class NeverReleases(BrokenHistory):
    """Ignores `release`."""

    def release(self, token: Token) -> None:
        pass


class CommonSlot(SharedSource):
    """Keeps the history of all changefeeds under one name."""

    @property
    def feed(self) -> str:
        return "cdc"


class SharesItsSlot(BrokenRangefeed):
    """Keeps history under a name that all changefeeds of the source share."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = CommonSlot(context)


class SharesItsSlotHistory(BrokenHistory):
    """The coordinator's part of `SharesItsSlot`."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = CommonSlot(context)


class ClosesOnce(BrokenPlanner):
    """Cannot be closed twice."""

    _closed = False

    def close(self) -> None:
        if self._closed:
            raise TerminalRangefeedError("this planner is closed")
        self._closed = True
        super().close()


class LeavesFilesOpen(BrokenRangefeed):
    """Opens a file in each call of `schemas` and never closes it."""

    def schemas(self) -> Sequence[TableSchema]:
        os.open(os.devnull, os.O_RDONLY)
        return super().schemas()


class DropsOnce(BrokenRangefeed):
    """Raises an error if there is nothing to drop."""

    def drop(self, saved: Token | None) -> None:
        if self.source.feed not in self.source.database.protected():
            raise TerminalRangefeedError(f"changefeed {self.source.feed} keeps no history of the source")
        super().drop(saved)


class DropsNothing(BrokenRangefeed):
    """Leaves everything that it created on the source."""

    def drop(self, saved: Token | None) -> None:
        pass


class OutlivesATemporaryRun(BrokenRangefeed):
    """Leaves what it created when a temporary run ends."""

    def close(self) -> None:
        self.source.close()


class StartsNowInsteadOfAtTheCursor(BrokenRangefeed):
    """Checks the cursor, and starts at the present."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        if saved is not None or self.context.cursor is None:
            return token
        present = Frontier([Span(name) for name in self.source.names], self.source.cluster.high)
        return replace(SimulatedToken.from_token(token), frontier=present).to_token()


class StartsAtTheOldestHistory(BrokenRangefeed):
    """Starts at the oldest history when the cursor is older."""

    def start(self, saved: Token | None, save: Save) -> Token:
        cursor, oldest = self.context.cursor, self.source.cluster.gc_threshold
        if cursor is not None and Timestamp.parse(cursor) < oldest:
            self.context = replace(self.context, cursor=str(oldest))
        return super().start(saved, save)


class ListsItsOwnObjects(BrokenRangefeed):
    """Lists only what this changefeed has created."""

    def created(self) -> Sequence[SourceObjects]:
        return [entry for entry in super().created() if entry.feed_id == self.source.feed]


class TreatsOutagesAsFatal(BrokenPlanner):
    """Raises a TerminalRangefeedError while the source is out of reach."""

    def now(self) -> Timestamp:
        try:
            return super().now()
        except RetryableRangefeedError as error:
            raise TerminalRangefeedError(str(error)) from error


class SkipsAheadAfterAnOutage(BrokenRangefeed):
    """Continues from the present when it connects again after an outage."""

    cut_off: ClassVar[bool] = False

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        if SkipsAheadAfterAnOutage.cut_off and saved is not None:
            SkipsAheadAfterAnOutage.cut_off = False
            present = Frontier([Span(name) for name in self.source.names], self.source.cluster.high)
            return replace(SimulatedToken.from_token(token), frontier=present).to_token()
        return token


class SkipsAheadAfterAnOutageReader(BrokenReader):
    """The reader of `SkipsAheadAfterAnOutage`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        try:
            yield from super().read(slice_)
        except RetryableRangefeedError:
            SkipsAheadAfterAnOutage.cut_off = True
            raise
