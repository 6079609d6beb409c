"""Reads the files as a consumer would, in the order of their names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from cdc_core import Endpoint, SinkContext, SinkReader, StoredMessage
from cdc_sink_cloudstorage.compression import decompressed
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name
from cdc_sink_cloudstorage.options import options_of
from cdc_sink_cloudstorage.store import IN_PROGRESS
from cdc_sink_cloudstorage.uris import open_file_system

__all__ = ["CloudStorageReader"]


class CloudStorageReader(SinkReader):
    """Gives each file as one message, in the order of paths below the root, which is the order of the changefeed.

    The name of a file tells how it is compressed. Files with names that the sink does not write are skipped. When
    several changefeeds share a root, the files of all of them are given.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._options = options_of(context)

    def read(self) -> Iterator[StoredMessage]:
        """Yield the files that exist at the time of the call. Raises: ConfigError, and errors of the file system."""
        fs, _ = self._place
        for path, name in self._files():
            body = fs.cat_file(path)
            if isinstance(name, ResolvedFile):
                yield StoredMessage(topic=None, value=body)
            else:
                yield StoredMessage(topic=name.topic, value=decompressed(body, name.extension))

    def endpoints(self) -> Collection[Endpoint]:
        """Return one endpoint: one resolved file is the mark of all topics."""
        return [(None, None)]

    def close(self) -> None:
        """Do nothing: the client stays open in this process."""

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return open_file_system(self.context.uri, self._options)

    def _files(self) -> list[tuple[str, DataFile | ResolvedFile]]:
        fs, root = self._place
        fs.invalidate_cache()
        below = [path for path in fs.find(root) if not path.startswith(f"{root}/{IN_PROGRESS}/")]
        found = ((path, parse_name(path)) for path in sorted(below))
        return [(path, name) for path, name in found if name is not None]
