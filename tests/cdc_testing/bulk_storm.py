"""A storm over nodes that are a Spark cluster, with a large table and many changes: versions of rows are judged."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import polars as pl
import psycopg
from cdc_sink_kafka import reader
from cdc_testing.cluster_storm import ClusterStorm
from cdc_testing.hosts import OUTSIDE
from cdc_testing.kafka_reading import consumer, partitions_of
from cdc_testing.node_storm import JobFigures
from cdc_testing.object_stores import BUCKET, S3_SECRET, SeaweedFS
from cdc_testing.postgres import clock

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.store.values import ChangefeedRecord
from cdc_core.timestamp import Timestamp

_BUSY_ROWS = 100_000
_AT_ONCE = 500
_SHARE = 10
"""One change in so many is made in the large table."""
_LIMIT_S = 900.0
_SPREAD = np.int64(1 << 24)
Versions = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""The keys and versions of rows in the order in which a consumer got them."""


class HostsStore(SeaweedFS):
    """A store of objects that hosts reach too."""

    def command(self) -> Sequence[str]:
        return [part.replace("-ip.bind=127.0.0.1", "-ip.bind=0.0.0.0") for part in super().command()]

    @property
    def outside(self) -> str:
        return f"http://{OUTSIDE}:{self.port}"


class Load:
    """Raises versions of rows of both tables at *uri*, *rate* a second, from entering to leaving."""

    def __init__(self, uri: str, *, rate: int, rows: int) -> None:
        self._uri, self._rate, self._rows = uri, rate, rows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._failure: BaseException | None = None
        self.changes = 0
        self.rate = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            with psycopg.connect(self._uri, autocommit=True) as connection:
                due, turn = time.monotonic(), 0
                began = due
                while not self._stop.wait(max(due - time.monotonic(), 0.0)):
                    due, turn = due + _AT_ONCE / self._rate, turn + 1
                    many = _AT_ONCE // _SHARE
                    with connection.transaction():
                        for table, rows, share in (("busy", _BUSY_ROWS, _AT_ONCE - many), ("large", self._rows, many)):
                            begin = turn * share % rows
                            connection.execute(
                                f"UPDATE {table} SET version = version + 1 WHERE id >= %s AND id < %s",  # type: ignore[arg-type]
                                [begin, begin + share],
                            )
                    self.changes += _AT_ONCE
                    self.rate = self.changes / (time.monotonic() - began)
        except BaseException as error:
            self._failure = error


class BulkStorm(ClusterStorm):
    """As `ClusterStorm`, for one job that feeds a busy table into Kafka, and one that scans a large one into S3.

    The scan begins anew, as another job, whenever the one before has come to its end.
    """

    saves = "1s"

    def __init__(
        self, directory: Path, source: str, *, objects: HostsStore, local: str, rows: int, rate: int, **others: Any
    ) -> None:
        super().__init__(directory, source, jobs=0, **others)
        self._objects, self._local, self._rows, self._rate = objects, local, rows, rate
        self._scans: list[str] = []
        self._names = ["feed"]

    def rage(self, *, for_s: float, every_s: float, only: Sequence[str] = ()) -> None:
        """As `Storm.rage`."""
        with psycopg.connect(self._local) as connection:
            for table, rows in (("busy", _BUSY_ROWS), ("large", self._rows)):
                connection.execute(
                    f"CREATE TABLE {table} AS SELECT n::bigint AS id, 1 AS version, 'row ' || md5(n::text) AS note"  # type: ignore[arg-type]
                    f" FROM generate_series(0, {rows - 1}) n"
                )
                connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")  # type: ignore[arg-type]
        with Load(self._local, rate=self._rate, rows=self._rows) as load:
            self._nodes.create(
                "feed", self._source, ["public.busy"], f"kafka://{self._kafka}", resolved=self.saves,
                min_checkpoint_frequency=self.saves,
            )  # fmt: skip
            self._scan()
            self._nodes.until_delivering("feed", limit_s=_LIMIT_S)
            first, pause = list(only), threading.Event()
            began = due = time.monotonic()
            while first or time.monotonic() - began < for_s:
                pause.wait(max(due - time.monotonic(), 0.0))
                due += self._chance.expovariate(1 / every_s)
                self._await_recovery(self._strike(first.pop(0) if first else self._chance.choice(self.events)))
                self._scan()
            self.figures.lasted_s = time.monotonic() - began
        print(f"{load.changes:,} changes, {load.rate:,.0f} a second; {len(self._scans)} scans", flush=True)
        now = clock(self._source)
        for name in self._names:
            self._nodes.eventually(
                f"{name} delivers all", lambda name=name: self._nodes.high_water(name) >= now, limit_s=_LIMIT_S
            )
            self._pause(name)
        for name in ("feed", *self._scans):
            self.figures.jobs[name] = self._judge_versions(name)

    def _how_far(self, feed: ChangefeedRecord) -> Timestamp:
        """Return when a scan saved last: its high-water mark stands still."""
        if feed.high_water or feed.saved_at is None:
            return feed.high_water
        return Timestamp(int(feed.saved_at.timestamp() * 1e9))

    def _scan(self) -> None:
        """Begin the scan, or the next one once the high-water mark of the last moves."""
        if self._scans:
            if not self._nodes.high_water(self._scans[-1]):
                return
            self._pause(self._scans[-1])
            self._names.remove(self._scans[-1])
        name = f"scan{len(self._scans)}"
        secret = self._directory / "nodes" / "secret"
        secret.write_text(quote(S3_SECRET, safe=""))
        uri = self._objects.uri(name, AWS_ENDPOINT=self._objects.outside, AWS_SECRET_ACCESS_KEY="HERE")
        uri = uri.replace("HERE", f"${{file:{secret}}}")
        self._nodes.create(
            name, self._source, ["public.large"], uri, resolved=self.saves, min_checkpoint_frequency=self.saves,
            compression="gzip",
        )  # fmt: skip
        self._scans.append(name)
        self._names.append(name)
        print(f"{time.strftime('%H:%M:%S')} {name} begins", flush=True)

    def _pause(self, name: str) -> None:
        Changefeeds(self._nodes.store).pause(name, "the end")
        self._nodes.until(name, "paused")

    def _parts(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield what a consumer gets in order."""
        if name != "feed":
            fs = self._objects.file_system()
            for path in sorted(fs.find(f"{BUCKET}/{name}")):
                if path.endswith(".RESOLVED"):
                    yield pl.DataFrame({"resolved": [path]})
                elif ".ndjson" in path:
                    yield _rows(gzip.decompress(fs.cat_file(path)))
            return
        assert self._kafka is not None
        for place in partitions_of(self._kafka, ["busy"]):
            with consumer(self._kafka) as client:
                messages = reader.read_to_end(client, [place], limit_s=_LIMIT_S)
                for some in _batched(messages, 200_000):
                    yield _rows(b"\n".join(message.value() or b"" for message in some))

    def _judge_versions(self, name: str) -> JobFigures:
        """See that every version of each row came, and in order. Raises: AssertionError."""
        table, rows = ("busy", _BUSY_ROWS) if name == "feed" else ("large", self._rows)
        newest = np.zeros(rows, dtype=np.int64)
        count = repeats = marks = 0
        for part in self._parts(name):
            marks += int(part["resolved"].is_not_null().sum())
            if "id" in part.columns:
                found = part.drop_nulls("id")
                count += found.height
                repeats += follow(newest, found["id"].to_numpy(), found["version"].to_numpy(), name)
        assert newest.min() > 0, f"{name}: {(newest == 0).sum()} rows never came"
        if name in self._names:  # those that were to deliver all
            with psycopg.connect(self._local) as connection:
                found = connection.execute(f"SELECT version FROM {table} ORDER BY id").fetchall()  # type: ignore[arg-type]
            lacking = int((newest != np.array(found)[:, 0]).sum())
            assert not lacking, f"{name}: {lacking} rows lack their last version"
        sink, epoch = "kafka" if name == "feed" else "s3", self._nodes.job(name).epoch
        return JobFigures(sink=sink, locality="", epoch=epoch, rows=count, repeats=repeats, marks=marks, late=0)


def _batched(messages: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """As `itertools.batched`, which Python 3.11 lacks."""
    left = iter(messages)
    while some := list(islice(left, size)):
        yield some


def _rows(lines: bytes) -> pl.DataFrame:
    found = pl.read_ndjson(
        lines, schema={"after": pl.Struct({"id": pl.Int64, "version": pl.Int64}), "resolved": pl.String}
    )
    return found.unnest("after")


def follow(
    newest: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], versions: npt.NDArray[np.int64], name: str
) -> int:
    """Take the next rows that came, and return how many came before. Raises: AssertionError when one was left out."""
    order = np.argsort(ids, kind="stable")
    keys, found = ids[order], versions[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    spread = np.where(first, np.maximum(found, newest[keys]), found) + keys * _SPREAD
    reached = np.maximum.accumulate(spread)
    before = np.empty_like(reached)
    before[1:] = reached[:-1]
    before[first] = newest[keys[first]] + keys[first] * _SPREAD
    absolute = found + keys * _SPREAD
    fresh = absolute > before
    unseen = first & (newest[keys] == 0)
    gaps = fresh & ~unseen & (absolute != before + 1)
    assert not gaps.any(), (
        f"{name}: {gaps.sum()} versions were left out or came too late, such as row {keys[gaps][0]}, version"
        f" {found[gaps][0]} after {(before - keys * _SPREAD)[gaps][0]}"
    )
    np.maximum.at(newest, keys, found)
    return int((~fresh).sum())
