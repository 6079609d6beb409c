"""Rangefeeds that start, restart, let go and end wrongly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cdc_conformance.sabotage.rangefeed_edits import Editor
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_conformance.simulated.position import Position, is_intent
from cdc_core import (
    ConfigError,
    Frontier,
    HistoryLostError,
    Mark,
    RangefeedContext,
    RetryableRangefeedError,
    RowBatch,
    Slice,
    Span,
    StepLimit,
    TableSchema,
    TerminalRangefeedError,
    Timestamp,
    Token,
)
from cdc_core.options import option

Save = Callable[[Token], None]


class OpensInItsConstructor(Editor):
    """Opens what it may need when it is made."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._file: int | None = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        super().close()


class PreparesInCheck(Editor):
    """Makes the source ready while it looks whether it can be used."""

    def check(self) -> None:
        super().check()
        if self._feed not in self._database.protected():
            self._database.protect(self._feed, self._database.now)


class ChecksNoTables(Editor):
    """Looks whether the source is there, and not at the tables."""

    def check(self) -> None:
        try:
            super().check()
        except ConfigError:
            if not self._database.exists:
                raise


class RaisesWhatItsClientRaises(Editor):
    """Passes the errors of its client library on."""

    def check(self) -> None:
        if not self._database.exists:
            raise FileNotFoundError(2, "No such file or directory", str(self._database.directory))
        super().check()


@dataclass(frozen=True, slots=True, kw_only=True)
class TerseOptions(SimulatedOptions):
    """With an option that nobody explains."""

    hurry: bool = option(False, doc="")


class Terse(Editor):
    """Has an option that nobody explains."""


class ShowsItsUri(Editor):
    """Shows all of its context in its `repr`."""

    def __repr__(self) -> str:
        return f"ShowsItsUri({self.context.uri!r})"


class KnowsNoNumber(Editor):
    """Has NaN for a gauge that is not known yet."""

    def metrics(self) -> Mapping[str, float]:
        return {**super().metrics(), "lag_s": float("nan")}


class ForgetsTheScan(Editor):
    """Does not keep in mind over a restart that there is more to scan."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        return token if saved is None or is_intent(saved) else {**token, "scan": None}


class ScansAsOfTheRestart(Editor):
    """Takes a new snapshot for the rest of the scan, and reads the log from where it was."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        if saved is None or token["scan"] is None:
            return token
        at = self._database.begin_reading(self._feed)
        return {**token, "scan": {**token["scan"], "at": str(at)}}


class TakesAnIntentForAToken(Editor):
    """Goes on after a crash in the start as if all had been done."""

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        return {**token, "scan": None} if saved is not None and is_intent(saved) else token


class CreatesBeforeItSaves(Editor):
    """Tells of what it has created afterwards."""

    def start(self, saved: Token | None, save: Save) -> Token:
        if saved is None:
            self._database.begin_reading(self._feed)
        return super().start(saved, save)


class TuplesInTokens(Editor):
    """Has a tuple in its tokens, which comes back from JSON as a list."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        end = super().advance(start, after=after, limit=limit)
        return start if end is start else {**end, "names": tuple(self._names)}


class UriInTokens(Editor):
    """Writes into its tokens which source they are of."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        end = super().advance(start, after=after, limit=limit)
        return start if end is start else {**end, "source": self.context.uri}


class ReleasesWhatItHasRead(Editor):
    """Lets go in `advance` of what the engine does not ask for again."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        self.release(start)
        return super().advance(start, after=after, limit=limit)


class RefusesLateReleases(Editor):
    """Takes a token older than the last for a mistake of the engine's."""

    _last = Timestamp()

    def release(self, token: Token) -> None:
        needed = Position.from_token(token).needed
        if needed < self._last:
            raise TerminalRangefeedError(f"history was let go up to {self._last}, and now {needed} is to be")
        self._last = needed
        super().release(token)


class ReleasesUpToNow(Editor):
    """Lets go of all that is there when it may let go of what lies before a token."""

    def release(self, token: Token) -> None:
        super().release(token)
        self._database.protect(self._feed, self._database.now)


class GoesOnWithWhatIsLeft(Editor):
    """Begins with the oldest history that there is when it should begin earlier."""

    def start(self, saved: Token | None, save: Save) -> Token:
        try:
            return super().start(saved, save)
        except HistoryLostError:
            assert saved is not None
            left = Frontier([Span(name) for name in self._names], self._cluster.gc_threshold)
            return super().start(replace(Position.from_token(saved), frontier=left).to_token(), save)


class NeverReleases(Editor):
    """Leaves it to the source when history may go."""

    def release(self, token: Token) -> None:
        """Nothing."""


class SharesItsSlot(Editor):
    """Keeps history under a name that all changefeeds of the source have in common."""

    @property
    def _feed(self) -> str:
        return "cdc"


class ClosesOnce(Editor):
    """Cannot be closed again."""

    _closed = False

    def close(self) -> None:
        if self._closed:
            raise TerminalRangefeedError("this instance is closed")
        self._closed = True
        super().close()


class LeavesFilesOpen(Editor):
    """Opens a file for each look at the schemas, and closes none."""

    def schemas(self) -> list[TableSchema]:
        os.open(os.devnull, os.O_RDONLY)
        return list(super().schemas())


class DropsOnce(Editor):
    """Expects that what it drops is there."""

    def drop(self, saved: Token | None) -> None:
        if self._feed not in self._database.protected():
            raise TerminalRangefeedError(f"changefeed {self._feed} keeps no history of the source")
        super().drop(saved)


class DropsNothing(Editor):
    """Leaves what it has created to the administrators of the source."""

    def drop(self, saved: Token | None) -> None:
        pass


class GivesUpAtOnce(Editor):
    """Takes a source that is out of reach for one that is gone."""

    def now(self) -> Timestamp:
        try:
            return super().now()
        except RetryableRangefeedError as error:
            raise TerminalRangefeedError(str(error)) from error


class SkipsWhatAnOutageHeldUp(Editor):
    """Begins at the present when it connects again after an outage."""

    _cut_off: ClassVar[bool] = False

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        try:
            yield from super().read(slice_)
        except RetryableRangefeedError:
            type(self)._cut_off = True
            raise

    def start(self, saved: Token | None, save: Save) -> Token:
        token = super().start(saved, save)
        if type(self)._cut_off and saved is not None:
            type(self)._cut_off = False
            present = Frontier([Span(name) for name in self._names], self._cluster.high)
            return replace(Position.from_token(token), frontier=present).to_token()
        return token
