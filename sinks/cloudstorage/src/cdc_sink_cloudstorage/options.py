"""Options of the cloud-storage sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core.options import MB, ByteSize, option

__all__ = ["CloudStorageOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStorageOptions:
    """What a user may say about the files; as options of the changefeed or as parameters of the sink's URI."""

    partition_format: Literal["daily", "hourly", "flat"] = option(
        "daily",
        doc="Directories that files are sorted into by their timestamp (UTC): `2020-04-02/`, `2020-04-02/15/`, or none."
        " Choose it once: files of two formats under one root do not sort together.",
    )
    file_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="Size at which a file is closed, compared with its bytes after compression. Files may exceed it by one"
        " batch of rows.",
    )
    upload_buffer: ByteSize = option(
        ByteSize(32 * MB),
        doc="Bytes of finished files that may wait for the store while further rows are written; beyond it the source"
        " is read no faster than they leave.",
    )
    compression: Literal["none", "gzip", "zstd"] = option(
        "none", doc="How data files are compressed; adds `.gz` or `.zst` to their names. Resolved files never are."
    )
    topic_prefix: str = option("", doc="Text put before every topic, and so before the table's name in file names.")

    def __post_init__(self) -> None:
        for name in ("file_size", "upload_buffer"):
            if getattr(self, name) < 1:
                raise ValueError(f"option '{name}' must be at least 1 byte")
