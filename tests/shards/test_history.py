"""The history of several sources is released at each, and one that does not answer keeps its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cdc_core import RangefeedContext, SourceHistory, Timestamp, Token
from cdc_core.errors import RetryableRangefeedError, TerminalRangefeedError
from cdc_core.shards.history import ShardedHistory
from cdc_core.shards.token import ShardedToken, ShardState

CONTEXT = RangefeedContext(changefeed="t", feed_id="0123456789ab", uri="", tables=("t",), options=None)
SOURCES = ["x://u:secret@a/d", "x://b/d"]


class Server(SourceHistory):
    """A source that has released what it says, and may fail."""

    errors: dict[str, Exception] = {}  # noqa: RUF012
    released: dict[str, list[int]] = {}  # noqa: RUF012

    def release(self, token: Token) -> None:
        if self.context.uri in self.errors:
            raise self.errors[self.context.uri]
        self.released.setdefault(self.context.uri, []).append(token["at"])

    def metrics(self) -> Mapping[str, float]:
        if self.context.uri in self.errors:
            raise self.errors[self.context.uri]
        return {"retained_bytes": 10.0 * self.released[self.context.uri][-1]}

    def notice(self) -> str | None:
        return "a long transaction" if self.released[self.context.uri][-1] == 3 else None


@pytest.fixture
def history() -> Iterator[ShardedHistory]:
    Server.errors, Server.released = {}, {}
    opened = ShardedHistory(CONTEXT, Server, SOURCES)
    yield opened
    opened.close()


def token(*at: int, away: tuple[int, ...] = ()) -> Token:
    shards = tuple(ShardState(token={"at": each}, latest=Timestamp(each)) for each in at)
    return ShardedToken(shards=shards, away=away).to_json()


def test_each_source_releases_its_own_and_the_greatest_gauge_is_shown(history: ShardedHistory) -> None:
    history.release(token(1, 2))
    assert Server.released == {SOURCES[0]: [1], SOURCES[1]: [2]}
    assert history.metrics() == {"retained_bytes": 20.0}
    assert history.notice() is None
    history.release(token(3, 2))
    assert history.notice() == "source x://a/d: a long transaction"


def test_what_sources_retain_is_measured_without_a_release(history: ShardedHistory) -> None:
    Server.released = {SOURCES[0]: [5], SOURCES[1]: [2]}
    assert history.metrics() == {"retained_bytes": 50.0}
    Server.errors = {SOURCES[0]: RetryableRangefeedError("no answer")}
    with pytest.raises(RetryableRangefeedError, match="source x://a/d: no answer"):
        history.metrics()


def test_a_source_that_failed_and_is_left_out_then_counts_once(history: ShardedHistory) -> None:
    Server.errors = {SOURCES[0]: RetryableRangefeedError("down")}
    history.release(token(1, 2))
    history.release(token(1, 3, away=(0,)))
    assert history.notice() is not None
    assert str(history.notice()).count("x://a/d") == 1


def test_a_source_that_does_not_answer_is_in_the_notice_and_is_not_asked_at_each_step(history: ShardedHistory) -> None:
    Server.errors[SOURCES[1]] = RetryableRangefeedError("no answer")
    history.release(token(1, 2))
    assert history.metrics() == {"retained_bytes": 10.0}
    assert history.notice() == "history is not released: source x://b/d: no answer"
    Server.errors.clear()
    history.release(token(2, 3))
    assert Server.released == {SOURCES[0]: [1, 2]}


def test_a_source_that_was_away_at_the_start_is_not_asked(history: ShardedHistory) -> None:
    Server.errors[SOURCES[0]] = TerminalRangefeedError("never asked")
    history.release(token(1, 2, away=(0,)))
    assert history.notice() == "x://a/d could not be reached; resolved timestamps are on hold until it can be reached"
    assert Server.released == {SOURCES[1]: [2]}


def test_an_error_that_no_retry_can_cure_is_raised_and_so_is_that_of_the_only_source(history: ShardedHistory) -> None:
    Server.errors[SOURCES[0]] = TerminalRangefeedError("gone")
    with pytest.raises(TerminalRangefeedError, match="source x://a/d: gone"):
        history.release(token(1, 2))
    Server.errors = {uri: RetryableRangefeedError("no answer") for uri in SOURCES}
    with pytest.raises(RetryableRangefeedError, match="source x://a/d: no answer"):
        history.release(token(1, 2))
