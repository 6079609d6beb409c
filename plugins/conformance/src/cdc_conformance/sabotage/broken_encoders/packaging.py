"""Mistakes with options, with `check` and with resources."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_conformance.reference.encoder import ReferenceEncoder, ReferenceEncoderOptions
from cdc_conformance.sabotage.breaking import breaks, mistakes
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

Tables = Sequence[tuple[TableSchema, str]]


@mistakes
class Packaging(ReferenceEncoder):
    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.numbers: dict[str, int] = {}
        self.last: dict[bytes, bytes | None] = {}

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        value = super().value(rows, index, topic, key)
        number = self.numbers.get(rows.schema.name.full)
        return value if value is None or number is None else {**value, "table": number}

    @breaks("test_the_constructor_has_no_side_effects", "__init__")
    def resolves_a_host_name(self, context: EncoderContext) -> None:
        """Resolves a host name in its constructor."""
        Packaging.__init__(self, context)
        socket.getaddrinfo("localhost", 80)

    @breaks("test_a_check_changes_nothing", "check")
    def numbers_checked_tables(self, tables: Tables) -> None:
        """Writes a table number that only `check` assigns. Workers never call `check`."""
        super().check(tables)
        for schema, _ in tables:
            self.numbers.setdefault(schema.name.full, len(self.numbers))

    @breaks("test_a_check_refuses_a_column_by_name", "check")
    def refuses_without_names(self, tables: Tables) -> None:
        """Refuses intervals without naming the column."""
        super().check(tables)
        for schema, _ in tables:
            if any(column.type.kind is Kind.INTERVAL for column in schema.columns):
                raise ConfigError(f"table {schema.name} has an unsupported type; remove it")

    @breaks("test_secrets_are_not_shown", "__repr__")
    def shows_its_password(self) -> str:
        """Shows a secret in `repr`."""
        return f"ShowsItsPassword(ascii_only={self.options.ascii_only}, password={self.options.password!r})"

    @breaks("test_an_unreachable_service_is_retryable", "encode")
    def raises_terminal_errors(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Raises TerminalError for an unreachable service."""
        try:
            return super().encode(rows, topic=topic)
        except RetryableError as error:
            raise TerminalError(str(error)) from error

    @breaks("test_memory_is_a_multiple_of_the_batch", "encode")
    def copies_for_each_row(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Copies all earlier values for each row, like `text += more`."""
        batch = super().encode(rows, topic=topic)
        values = [value or b"" for value in batch.value.to_pylist()]
        copies = [b"".join(values[: row + 1]) for row in range(len(values))]
        del copies
        return batch

    @breaks("test_encoded_batches_are_released", "encode")
    def caches_values(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Caches the last value of each key."""
        batch = super().encode(rows, topic=topic)
        self.last.update(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True))
        return batch

    @breaks("test_no_thread_or_descriptor_leaks", "encode_resolved")
    def leaks_a_descriptor(self, topic: str, timestamp: Timestamp) -> bytes:
        """Opens a file descriptor for each mark and never closes it."""
        os.open(os.devnull, os.O_RDONLY)
        return super().encode_resolved(topic, timestamp)


@breaks("test_options_are_documented")
@dataclass(frozen=True, slots=True, kw_only=True)
class HasAnUndocumentedOption(ReferenceEncoderOptions):
    """Has an option without documentation."""

    tidy: bool = option(False, doc="")


@breaks("test_contexts_can_be_pickled")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoresAFunctionInItsOptions(ReferenceEncoderOptions):
    """Replaces the text of an option by a function, which cannot be pickled."""

    case: str = option("unchanged", doc="Case of texts.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "case", lambda text: text)
