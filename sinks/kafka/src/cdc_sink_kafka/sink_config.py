"""The option `kafka_sink_config`: CockroachDB's names for properties of librdkafka's producer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc_core import Duration, OptionError, option, parse_options

_OWNER = "option 'kafka_sink_config'"
_ZSTD_LEVELS = {1: 1, 2: 3, 3: 7, 4: 11}
_GZIP_LEVELS = range(-1, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushConfig:
    """The entries of `Flush`. 0 means librdkafka's default, except for Frequency."""

    Messages: int = option(0, doc="Send a batch as soon as it has this many messages. Sets `batch.num.messages`.")
    Bytes: int = option(
        0, doc="Send a batch as soon as it has this many bytes. Topic limits still apply. Sets `batch.size`."
    )
    # rows come in bursts, and a small batch costs the broker more than its messages; a flush does not wait for this
    Frequency: Duration = option(Duration(0.05), doc="How long a batch waits for more messages. Sets `linger.ms`.")
    MaxMessages: int = option(
        0, doc="Maximum number of messages in a batch. If `Messages` is set too, the smaller number applies."
    )
    MaxBytes: int = option(
        256 * 1024 * 1024, doc="Maximum size of a message in bytes, before compression. Sets `message.max.bytes`."
    )

    def __post_init__(self) -> None:
        for name in ("Messages", "Bytes", "Frequency", "MaxMessages"):
            if getattr(self, name) < 0:
                raise ValueError(f"'Flush.{name}' must not be negative")
        if not 1000 <= self.MaxBytes <= 1_000_000_000:
            raise ValueError("'Flush.MaxBytes' must be from 1000 to 1000000000")
        if (self.Messages or self.Bytes) and not self.Frequency:
            raise ValueError(
                "'Flush.Frequency' is 0, so batches would not wait for 'Messages' or 'Bytes'; remove 'Flush.Frequency',"
                " or raise it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """The entries of `kafka_sink_config`."""

    Flush: dict[str, Any] = option(None, doc="Entries that decide when a batch is sent.")
    RequiredAcks: Literal["all", "one", "none"] = option(
        "all",
        doc="Which replicas must acknowledge a batch: all in-sync replicas, only the leader, or none. With `ONE` or"
        " `NONE`, the producer is not idempotent, and rows can be lost. Sets `acks`.",
    )
    Version: str = option(
        "", doc="Version to assume for brokers that do not report one, at least 0.11. Sets `broker.version.fallback`."
    )
    ClientID: str = option(
        "",
        doc="Name of the client in the broker's logs and quotas. Default: `cdc-` followed by the name of the"
        " changefeed. Sets `client.id`.",
    )
    Compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = option(
        "none", doc="Compression of batches. Sets `compression.type`."
    )
    CompressionLevel: int | None = option(
        None,
        doc="Compression level, on the same scale as in CockroachDB: GZIP -1 to 9, ZSTD 1 to 4, LZ4 0 or a power of"
        " two from 512 to 131072. Sets `compression.level`.",
    )

    @classmethod
    def of(cls, value: Mapping[str, Any] | None) -> SinkConfig:
        """Return the config that the option's *value* describes. Raises: OptionError."""
        values: dict[str, Any] = {}
        for name, entry in (value or {}).items():
            table, dot, rest = name.partition(".")
            if dot and table == "Flush":
                values.setdefault(table, {})[rest] = entry
            elif name == "Flush" and isinstance(entry, Mapping):
                values.setdefault(name, {}).update(entry)
            else:
                values[name] = entry
        config = parse_options(cls, values, owner=_OWNER)
        try:
            config.properties()
        except OptionError:
            raise
        except ValueError as error:
            raise OptionError(f"{_OWNER}: {error}") from None
        return config

    def flush(self) -> FlushConfig:
        """Return the entries of `Flush`. Raises: OptionError."""
        return parse_options(FlushConfig, self.Flush or {}, owner=_OWNER)

    def properties(self) -> dict[str, Any]:
        """Return the librdkafka properties of the config. Raises: ValueError."""
        flush = self.flush()
        found: dict[str, Any] = {
            "message.max.bytes": flush.MaxBytes,
            "acks": {"all": "all", "one": 1, "none": 0}[self.RequiredAcks],
            "compression.type": self.Compression,
            "linger.ms": flush.Frequency * 1000,
        }
        messages = min((count for count in (flush.Messages, flush.MaxMessages) if count), default=0)
        if messages:
            found["batch.num.messages"] = messages
        if flush.Bytes:
            found["batch.size"] = flush.Bytes
        if self.Version:
            found["broker.version.fallback"] = self._version()
        if self.ClientID:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", self.ClientID):
                raise ValueError("'ClientID' may contain only letters, digits and . _ -")
            found["client.id"] = self.ClientID
        if self.CompressionLevel is not None:
            found["compression.level"] = self._level(self.CompressionLevel)
        return found

    def _version(self) -> str:
        if not re.fullmatch(r"\d+(\.\d+){2,3}", self.Version):
            raise ValueError(f"'Version' is '{self.Version}'; write a version such as 1.0.0 or 0.11.0.0")
        parts = [int(part) for part in self.Version.split(".")]
        if parts < [0, 11]:
            raise ValueError(f"'Version' is '{self.Version}', but brokers before 0.11 are not supported")
        return self.Version if parts[0] == 0 else ".".join(map(str, parts[:3]))

    def _level(self, level: int) -> int:
        """Return librdkafka's number for CockroachDB's *level*."""
        if self.Compression == "gzip":
            if level == -2:
                raise ValueError("'CompressionLevel' -2 (Huffman only) is not supported by librdkafka; use -1 to 9")
            if level in _GZIP_LEVELS:
                return level
            raise ValueError("'CompressionLevel' of GZIP must be from -1 to 9")
        if self.Compression == "zstd":
            if level in _ZSTD_LEVELS:
                return _ZSTD_LEVELS[level]
            raise ValueError("'CompressionLevel' of ZSTD must be from 1 to 4")
        if self.Compression == "lz4":
            if level == 0 or level in (2**power for power in range(9, 18)):
                return max(0, level.bit_length() - 9)
            raise ValueError("'CompressionLevel' of LZ4 must be 0 or a power of two from 512 to 131072")
        raise ValueError(f"'CompressionLevel' has no effect with 'Compression' {self.Compression.upper()}; remove it")
