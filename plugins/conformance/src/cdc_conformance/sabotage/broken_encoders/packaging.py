"""Mistakes with options, with `check` and with resources."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_conformance.reference.encoder import ReferenceEncoder, ReferenceEncoderOptions
from cdc_core import (
    ConfigError,
    EncoderContext,
    Kind,
    MessageBatch,
    RetryableError,
    RowBatch,
    TableSchema,
    TerminalError,
    Timestamp,
    option,
)

__all__ = [
    "AcceptsAnyOption",
    "CachesValues",
    "CopiesForEachRow",
    "HasAnUndocumentedOption",
    "LeaksADescriptor",
    "NumbersCheckedTables",
    "RaisesTerminalErrors",
    "RefusesWithoutNames",
    "ResolvesAHostName",
    "ShowsItsPassword",
    "StoresAFunctionInItsOptions",
]


class ResolvesAHostName(ReferenceEncoder):
    """Resolves a host name in its constructor."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        socket.getaddrinfo("localhost", 80)


class NumbersCheckedTables(ReferenceEncoder):
    """Writes a table number that only `check` assigns. Workers never call `check`."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.numbers: dict[str, int] = {}

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        super().check(tables)
        for schema, _ in tables:
            self.numbers.setdefault(schema.name.full, len(self.numbers))

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        number = self.numbers.get(rows.schema.name.full)
        return value if value is None or number is None else {**value, "table": number}


class RefusesWithoutNames(ReferenceEncoder):
    """Refuses intervals without naming the column."""

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        super().check(tables)
        for schema, _ in tables:
            if any(column.type.kind is Kind.INTERVAL for column in schema.columns):
                raise ConfigError(f"table {schema.name} has an unsupported type; remove it")


class HasAnUndocumentedOption(ReferenceEncoder):
    """Has an option without documentation."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(ReferenceEncoderOptions):
        tidy: bool = option(False, doc="")


HasAnUndocumentedOptionOptions = HasAnUndocumentedOption.Options


class AcceptsAnyOption(ReferenceEncoder):
    """Has an option of type Any."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(ReferenceEncoderOptions):
        extra: Any = option(None, doc="Any value.")


AcceptsAnyOptionOptions = AcceptsAnyOption.Options


class ShowsItsPassword(ReferenceEncoder):
    """Shows a secret in `repr`."""

    def __repr__(self) -> str:
        return f"ShowsItsPassword(ascii_only={self.options.ascii_only}, password={self.options.password!r})"


class StoresAFunctionInItsOptions(ReferenceEncoder):
    """Replaces the text of an option by a function, which cannot be pickled."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(ReferenceEncoderOptions):
        case: str = option("unchanged", doc="Case of texts.")

        def __post_init__(self) -> None:
            object.__setattr__(self, "case", lambda text: text)


StoresAFunctionInItsOptionsOptions = StoresAFunctionInItsOptions.Options


class RaisesTerminalErrors(ReferenceEncoder):
    """Raises TerminalError for an unreachable service."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        try:
            return super().encode(rows, topic=topic)
        except RetryableError as error:
            raise TerminalError(str(error)) from error


class CopiesForEachRow(ReferenceEncoder):
    """Copies all earlier values for each row, like `text += more`."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        values = [value or b"" for value in batch.value.to_pylist()]
        copies = [b"".join(values[: row + 1]) for row in range(len(values))]
        del copies
        return batch


class CachesValues(ReferenceEncoder):
    """Caches the last value of each key."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.last: dict[bytes, bytes | None] = {}

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        self.last.update(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True))
        return batch


class LeaksADescriptor(ReferenceEncoder):
    """Opens a file descriptor for each mark and never closes it."""

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        os.open(os.devnull, os.O_RDONLY)
        return super().encode_resolved(topic, timestamp)
