"""A changefeed into Kafka, together with a consumer that follows its topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc_testing.bank import Faithful, assert_faithful_kafka
from cdc_testing.fixtures import Counts
from cdc_testing.kafka_following import Follower
from cdc_testing.postgres import clock
from cdc_testing.runs import Feed

from cdc_core import Decoder, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedFeed:
    """A feed from the database at `uri`, and a consumer of all its topics."""

    uri: str
    bootstrap_servers: str
    feed: Feed
    follower: Follower

    def reach(self, timestamp: Timestamp) -> None:
        """Return when the consumer has every partition up to *timestamp*."""
        self.feed.until(f"all up to {timestamp}", lambda: self.follower.cut() >= timestamp)

    def reach_now(self) -> None:
        """Return when the consumer has everything that is committed at this moment."""
        self.reach(clock(self.uri))

    def await_rows(self, rows: int, what: str) -> None:
        """Return when *rows* more rows have arrived. *what* describes them in the error."""
        target = self.follower.read() + rows
        self.feed.until(what, lambda: self.follower.read() >= target)

    def verify(self, counts: Counts, *, moving_keys: bool = False, **numbers: int) -> Faithful:
        """Verify the topics against the bank, as `assert_faithful_kafka`. Adds *numbers* to the counts."""
        found = assert_faithful_kafka(self.bootstrap_servers, self.uri, moving_keys=moving_keys)
        counts(**numbers, rows=found.rows, repeats=self.follower.repeats, marks=found.marks, cuts=found.cuts)
        return found


@contextmanager
def followed_feed(
    directory: Path,
    uri: str,
    bootstrap_servers: str,
    tables: Sequence[str],
    *,
    options: Mapping[str, object],
    format_: str | None = None,
    decoder: Decoder | None = None,
) -> Iterator[FollowedFeed]:
    """Yield a feed of *tables* that is not started yet, and a consumer that reads from the beginning."""
    topics = [f"{options.get('topic_prefix', '')}{table.rpartition('.')[2]}" for table in tables]
    with (
        Feed(directory, uri, tables, sink=f"kafka://{bootstrap_servers}", options=options, format_=format_) as feed,
        Follower(bootstrap_servers, topics, decoder=decoder) as follower,
    ):
        yield FollowedFeed(uri=uri, bootstrap_servers=bootstrap_servers, feed=feed, follower=follower)
