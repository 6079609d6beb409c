"""Mistakes with options, with what is called before the first row, and with resources."""

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
)
from cdc_core.options import option

__all__ = [
    "AcceptsAnyOption",
    "CopiesForEachRow",
    "GivesUpAtOnce",
    "LooksUpItsHost",
    "NumbersCheckedTables",
    "OpensAFileForEachMark",
    "RefusesWithoutNames",
    "RemembersValues",
    "SaysNothingOfItsOption",
    "ShowsItsPassword",
    "WorksOutItsOptions",
]


class LooksUpItsHost(ReferenceEncoder):
    """Looks up the address of its registry at once, to be ready when rows come."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        socket.getaddrinfo("localhost", 80)


class NumbersCheckedTables(ReferenceEncoder):
    """Writes for each row the number that its table had in `check`, which workers never call."""

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
    """Refuses intervals, and lets the user guess where there is one."""

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        super().check(tables)
        for schema, _ in tables:
            if any(column.type.kind is Kind.INTERVAL for column in schema.columns):
                raise ConfigError(f"table {schema.name} has a type that is not supported; leave it out")


class SaysNothingOfItsOption(ReferenceEncoder):
    """Has an option whose meaning is left to its name."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(ReferenceEncoderOptions):
        tidy: bool = option(False, doc="")


SaysNothingOfItsOptionOptions = SaysNothingOfItsOption.Options


class AcceptsAnyOption(ReferenceEncoder):
    """Has an option of a type that options cannot have."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(ReferenceEncoderOptions):
        extra: Any = option(None, doc="Whatever may be needed.")


AcceptsAnyOptionOptions = AcceptsAnyOption.Options


class ShowsItsPassword(ReferenceEncoder):
    """Shows in `repr` all that it has."""

    def __repr__(self) -> str:
        return f"ShowsItsPassword(ascii_only={self.options.ascii_only}, password={self.options.password!r})"


class WorksOutItsOptions(ReferenceEncoder):
    """Puts a function in the place of an option's text, which cannot leave the process."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(ReferenceEncoderOptions):
        case: str = option("as it is", doc="How texts are written.")

        def __post_init__(self) -> None:
            object.__setattr__(self, "case", lambda text: text)


WorksOutItsOptionsOptions = WorksOutItsOptions.Options


class GivesUpAtOnce(ReferenceEncoder):
    """Takes a service that is away for a moment for one that is gone for good."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        try:
            return super().encode(rows, topic=topic)
        except RetryableError as error:
            raise TerminalError(str(error)) from error


class CopiesForEachRow(ReferenceEncoder):
    """Copies all that was written so far for each row, as `text += more` does."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        values = [value or b"" for value in batch.value.to_pylist()]
        copies = [b"".join(values[: row + 1]) for row in range(len(values))]
        del copies
        return batch


class RemembersValues(ReferenceEncoder):
    """Remembers the last value of each key, to leave out repetitions some day."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.last: dict[bytes, bytes | None] = {}

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        self.last.update(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True))
        return batch


class OpensAFileForEachMark(ReferenceEncoder):
    """Opens something for each mark that nobody ever closes."""

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        os.open(os.devnull, os.O_RDONLY)
        return super().encode_resolved(topic, timestamp)
