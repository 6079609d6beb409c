"""How the files of one changefeed are named, and those of one slice of it."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import SinkContext, SliceInfo, Timestamp, TopicNames
from cdc_sink_cloudstorage.compression import EXTENSIONS
from cdc_sink_cloudstorage.names import DataFile, PartitionFormat
from cdc_sink_cloudstorage.options import options_of

_LARGE_VERSION = 0xFFFF_FFFF
"""A schema version with as many digits as any will have."""
_NAMES_OF_A_TASK_ATTEMPT = 1 << 24
_IDENTITY_DIGITS, _IDENTITY_SHIFT = 6, 40
"""The epoch in a name has 16 hex digits: so many of the changefeed's identity, and then those of the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The rules for names that all parts of the sink share."""

    feed_id: str
    """Identity of the changefeed: those of one root may have equal epochs, steps and timestamps."""
    topics: TopicNames
    partition_format: PartitionFormat
    extension: str
    """The end of the names of data files, with its dot."""

    @classmethod
    def of(cls, context: SinkContext) -> Layout:
        """Return the layout of the files that a sink with *context* writes."""
        options = options_of(context)
        return cls(
            feed_id=context.feed_id,
            topics=context.topics(options.topic_prefix),
            partition_format=options.partition_format,
            extension=context.encoder.file_extension + EXTENSIONS[context.compression],
        )

    @property
    def identity(self) -> int:
        """The first digits of the epochs in names: of two changefeeds below one root, neither overwrites the other."""
        return int(self.feed_id[:_IDENTITY_DIGITS] or "0", 16) << _IDENTITY_SHIFT

    def longest_name_bytes(self, topic: str) -> int:
        """Return how many bytes the name of a file of *topic* has, whatever its slice and schema version."""
        any_slice = SliceInfo(step=0, index=0, lower=Timestamp())
        path = SliceNames(any_slice, epoch=0, layout=self).next_path(topic, _LARGE_VERSION)
        return len(path.rpartition("/")[2].encode())


class SliceNames:
    """Gives the files of a slice their names, one after the other. They depend on nothing but the slice.

    A slice that repeats one of an earlier attempt begins with the names that the earlier attempt used, and a task that
    is started again begins with the names of the first one. Where such a name has other content, `use_new` switches to
    names that sort after all of those: under the epoch of this attempt, or with a counter from 2**24 times the number
    of the task attempt.
    """

    def __init__(self, slice_: SliceInfo, *, epoch: int, layout: Layout) -> None:
        """*epoch* is that of the present attempt."""
        self._slice = slice_
        self._layout = layout
        self._own_epoch = epoch
        self._epoch = epoch if slice_.planned_by is None else slice_.planned_by
        self._counter = 0

    @property
    def may_exist(self) -> bool:
        """Whether an earlier attempt may have written a file under the next name."""
        return self._epoch != self._own_epoch or self._counter < self._first_own_counter

    def next_path(self, topic: str, schema_version: int) -> str:
        """Return the path below the root of the next file, which holds rows of *topic* and *schema_version*.

        The same name is next until `advance` or `use_new` is called.
        """
        file = DataFile(
            timestamp=self._slice.lower,
            epoch=self._layout.identity | self._epoch,
            step=self._slice.step,
            slice_index=self._slice.index,
            counter=self._counter,
            topic=topic,
            schema_version=schema_version,
            extension=self._layout.extension,
        )
        return file.path(self._layout.partition_format)

    def advance(self) -> None:
        """Note that a file has the next name."""
        self._counter += 1

    def use_new(self) -> None:
        """Switch to names after those of the attempt that is repeated, or after those of earlier task attempts."""
        if self._epoch != self._own_epoch:
            self._epoch = self._own_epoch
        else:
            self._counter = self._first_own_counter

    @property
    def _first_own_counter(self) -> int:
        return self._slice.task_attempt * _NAMES_OF_A_TASK_ATTEMPT
