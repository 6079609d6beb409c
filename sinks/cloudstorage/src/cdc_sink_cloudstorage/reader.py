"""Reads the files back as a consumer would."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

import zstandard

from cdc_core.sink import SinkContext
from cdc_core.sink_reader import Endpoint, SinkReader, StoredMessage
from cdc_sink_cloudstorage.compression import EXTENSIONS
from cdc_sink_cloudstorage.destination import open_file_system
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.store import IN_PROGRESS

__all__ = ["CloudStorageReader", "unpacked"]

_GZIP_FORMAT = 31
_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    EXTENSIONS["gzip"]: lambda body: zlib.decompress(body, _GZIP_FORMAT),
    EXTENSIONS["zstd"]: lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}


class CloudStorageReader(SinkReader):
    """Gives one message a file, in the order of paths below the root, which is the order of the changefeed.

    How a file is compressed is read from its name. Files whose names are not the sink's are left out; of changefeeds
    that share a root all files are given.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, CloudStorageOptions):
            raise TypeError(f"options must be CloudStorageOptions, not {type(context.options).__name__}")
        self._options: CloudStorageOptions = context.options

    def read(self) -> Iterator[StoredMessage]:
        """Yield the files that were there when this was called. Raises: ConfigError, and what the file system does."""
        fs, _ = self._place
        for path, name in self._files():
            body = fs.cat_file(path)
            if isinstance(name, ResolvedFile):
                yield StoredMessage(topic=None, value=body)
            else:
                yield StoredMessage(topic=name.topic, value=unpacked(body, name.extension))

    def endpoints(self) -> Collection[Endpoint]:
        """One resolved file speaks for all topics."""
        return [(None, None)]

    def close(self) -> None:
        """There is nothing to let go of: fsspec keeps its clients."""

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return open_file_system(self.context.uri, self._options)

    def _files(self) -> list[tuple[str, DataFile | ResolvedFile]]:
        fs, root = self._place
        fs.invalidate_cache()
        below = [path for path in fs.find(root) if not path.startswith(f"{root}/{IN_PROGRESS}/")]
        found = ((path, parse_name(path)) for path in sorted(below))
        return [(path, name) for path, name in found if name is not None]


def unpacked(body: bytes, name: str) -> bytes:
    """Return *body* decompressed as the end of *name* says."""
    for suffix, unpack in _UNPACK.items():
        if name.endswith(suffix):
            return unpack(body)
    return body
