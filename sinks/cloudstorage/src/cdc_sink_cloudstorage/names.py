"""File names: how they are made from what a file holds, and how they are parsed.

    <partition>/<timestamp>-<epoch>-<step>-<slice>-<file>-<topic>-<schema version><extension>
    2020-04-02/202004022058072107140000000000000-4f8e210000000007-0000000003-00000-00000000-orders-1.ndjson
    <partition>/<timestamp>.RESOLVED
    <partition>/<timestamp>.MANIFEST.<changefeed>.<id of the changefeed>

part            form                what it is
timestamp       33 digits           UTC date and time, 9 digits of nanoseconds, 10 of the logical counter
epoch           16 hex digits       6 of the changefeed's identity, and 10 of the attempt that planned the slice: later
                                    attempts of a changefeed have greater epochs
step, slice     10 and 5 digits     the step of that attempt, and the slice of the step
file            8 hex digits        counts the files of the slice from 0
topic           escaped             see `escape_topic`
schema version  hex                 of the table
extension       starts with a dot   that of the encoder, then `.gz` or `.zst`

Every part before the topic has a fixed width, so names sort as text exactly as (timestamp, epoch, step, slice, file)
sort as values. `-` sorts before `.`, so data files sort before the resolved file of the same timestamp. The manifest,
which lists what the mark covers, sorts between them. The partition is part of the same timestamp, so whole paths sort
as names do while partition_format stays the same.

Parsing is unambiguous although a topic may contain `-` and `.`: every part before it has a fixed width, and the last
`-` of the name comes after it, because neither a schema version nor an extension contains one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import unquote

from cdc_core import Timestamp

PartitionFormat = Literal["daily", "hourly", "flat"]

_DATA = re.compile(
    r"(?P<ts>\d{33})-(?P<epoch>[0-9a-f]{16})-(?P<step>\d{10})-(?P<index>\d{5})-(?P<file>[0-9a-f]{8})"
    r"-(?P<topic>[^/]+)-(?P<schema>[0-9a-f]+)(?P<ext>\.[^-/]+)",
    re.ASCII,
)
_RESOLVED = re.compile(r"(?P<ts>\d{33})\.RESOLVED", re.ASCII)
_MANIFEST = re.compile(r"(?P<ts>\d{33})\.MANIFEST\.(?P<changefeed>[A-Za-z0-9_-]{1,40})\.(?P<id>[0-9a-f]{12})", re.ASCII)
_EXTENSION = re.compile(r"(\.[A-Za-z0-9_]+)+", re.ASCII)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%/\\*?\[\]{}:\"<>|#]")
_LIMITS = {"epoch": 16**16, "step": 10**10, "slice_index": 10**5, "counter": 16**8}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(ABC):
    timestamp: Timestamp

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the file, without its directory."""

    def path(self, partition_format: PartitionFormat) -> str:
        """Return the path of the file below the root."""
        return partition_of(self.timestamp, partition_format) + self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile(_File):
    """Which rows a data file holds: none has `updated` below the timestamp.

    Raises: ValueError for a value that does not fit into the name.
    """

    epoch: int
    step: int
    slice_index: int
    counter: int
    topic: str
    schema_version: int
    extension: str

    def __post_init__(self) -> None:
        for name, limit in _LIMITS.items():
            if not 0 <= getattr(self, name) < limit:
                raise ValueError(f"{name} {getattr(self, name)} does not fit into a file name")
        if not self.topic or self.schema_version < 0:
            raise ValueError(
                f"a file name needs a topic, and a schema version of 0 or more, not {self.topic!r} and "
                f"{self.schema_version}"
            )
        if not _EXTENSION.fullmatch(self.extension):
            raise ValueError(f"{self.extension!r} is not a file extension (letters and digits after each dot)")

    @property
    def name(self) -> str:
        return (
            f"{timestamp_text(self.timestamp)}-{self.epoch:016x}-{self.step:010d}-{self.slice_index:05d}"
            f"-{self.counter:08x}-{escape_topic(self.topic)}-{self.schema_version:x}{self.extension}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedFile(_File):
    """States that every row with `updated` up to *timestamp* is in a file whose path sorts before this one."""

    @property
    def name(self) -> str:
        return f"{timestamp_text(self.timestamp)}.RESOLVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile(_File):
    """Lists the files of one changefeed that the resolved mark *timestamp* covers and the previous mark did not."""

    changefeed: str
    feed_id: str

    @property
    def name(self) -> str:
        return f"{timestamp_text(self.timestamp)}.MANIFEST.{self.changefeed}.{self.feed_id}"


def parse_name(path: str) -> DataFile | ResolvedFile | None:
    """Return what the file name at the end of *path* means, or None when the sink does not write such names."""
    name = path.rpartition("/")[2]
    try:
        if found := _RESOLVED.fullmatch(name):
            return ResolvedFile(timestamp=_parse_timestamp(found["ts"]))
        if found := _DATA.fullmatch(name):
            return DataFile(
                timestamp=_parse_timestamp(found["ts"]),
                epoch=int(found["epoch"], 16),
                step=int(found["step"]),
                slice_index=int(found["index"]),
                counter=int(found["file"], 16),
                topic=unquote(found["topic"]),
                schema_version=int(found["schema"], 16),
                extension=found["ext"],
            )
    except ValueError:  # the digits are not a date
        return None
    return None


def parse_manifest_name(path: str) -> ManifestFile | None:
    """Return what the file name at the end of *path* means, or None when it is not that of a manifest."""
    found = _MANIFEST.fullmatch(path.rpartition("/")[2])
    try:
        return found and ManifestFile(
            timestamp=_parse_timestamp(found["ts"]), changefeed=found["changefeed"], feed_id=found["id"]
        )
    except ValueError:  # the digits are not a date
        return None


def escape_topic(topic: str) -> str:
    """Return *topic* with every character that is special in paths, globs or URIs written as `%` and two hex digits.

    These are control characters and ``% / \\ * ? [ ] { } : " < > | #``. All other characters stay, including those of
    other alphabets. Different topics give different results.
    """
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", topic)


def partition_of(timestamp: Timestamp, partition_format: PartitionFormat) -> str:
    """Return the directory of files with *timestamp* in their names, with a slash at its end; empty for "flat"."""
    if partition_format == "flat":
        return ""
    return _datetime(timestamp).strftime("%Y-%m-%d/" if partition_format == "daily" else "%Y-%m-%d/%H/")


def timestamp_text(timestamp: Timestamp) -> str:
    """Return *timestamp* as 33 digits that sort as timestamps do. Raises: ValueError after the year 9999."""
    return f"{_datetime(timestamp):%Y%m%d%H%M%S}{timestamp.wall % 10**9:09d}{timestamp.logical:010d}"


def _datetime(timestamp: Timestamp) -> datetime:
    try:
        return datetime.fromtimestamp(timestamp.wall // 10**9, UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"timestamp {timestamp} is after the year 9999 and cannot be part of a file name") from None


def _parse_timestamp(text: str) -> Timestamp:
    moment = datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return Timestamp(int(moment.timestamp()) * 10**9 + int(text[14:23]), int(text[23:]))
