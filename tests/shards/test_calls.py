"""Calls for every source, some of which are out of reach."""

from __future__ import annotations

import pytest
from cdc_testing.runs import eventually

from cdc_core import RangefeedContext
from cdc_core.errors import RestartError, RetryableRangefeedError, TerminalRangefeedError
from cdc_core.shards.shard import Outages, Shard, shards_of

CONTEXT = RangefeedContext(changefeed="t", feed_id="0123456789ab", uri="", tables=("t",), options=None)
SHARDS = shards_of(CONTEXT, ["x://u:secret@a/d", "x://b/d"])


class Sources:
    """What two sources answer: their index, or an error."""

    def __init__(self) -> None:
        self.errors: dict[int, Exception] = {}
        self.outages = Outages(SHARDS, self.answer)

    def answer(self, shard: Shard) -> int:
        if shard.index in self.errors:
            raise self.errors[shard.index]
        return shard.index

    def answers(self) -> dict[int, int]:
        return self.outages.answers(self.answer)


def test_a_source_that_is_out_of_reach_is_left_out_until_it_is_back() -> None:
    sources = Sources()
    assert sources.answers() == {0: 0, 1: 1}
    sources.errors[1] = RetryableRangefeedError("no answer")
    assert sources.answers() == {0: 0}
    del sources.errors[1]

    def is_back() -> bool:
        try:
            return sources.answers() == {}
        except RestartError as error:
            return "source x://b/d can be reached again" in str(error)

    eventually("the source is back", is_back)


def test_the_error_of_the_last_source_that_is_left_is_raised() -> None:
    sources = Sources()
    sources.errors = {index: RetryableRangefeedError("no answer") for index in (0, 1)}
    with pytest.raises(RetryableRangefeedError, match="source x://a/d: no answer"):
        sources.answers()
    sources.outages.leave_out([0, 1])
    with pytest.raises(RetryableRangefeedError, match="no source can be reached"):
        sources.answers()


@pytest.mark.parametrize(
    "error",
    [
        TerminalRangefeedError("dropped"),
        RestartError("other tables"),
        RetryableRangefeedError("strange", outage=False),
        ZeroDivisionError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_outage_ends_the_attempt(error: Exception) -> None:
    sources = Sources()
    sources.errors[1] = error
    with pytest.raises(type(error), match=str(error)):
        sources.answers()
