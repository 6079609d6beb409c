from __future__ import annotations

import pytest
from cdc_schema_registry import Registry


class Registered:
    """The subjects and texts of registered schemas, by id."""

    def __init__(self) -> None:
        self.schemas: list[tuple[str, str]] = []
        self.asked = 0

    def register(self, subject: str, schema: str, schema_type: str) -> int:
        assert schema_type == "AVRO"
        self.asked += 1
        if (subject, schema) not in self.schemas:
            self.schemas.append((subject, schema))
        return self.schemas.index((subject, schema)) + 1

    def text(self, schema_id: int) -> str:
        return self.schemas[schema_id - 1][1]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Registered:
    """A registry in memory that replaces the registry of every encoder."""
    registered = Registered()

    def register(_: Registry, subject: str, schema: str, schema_type: str, *, aside: str | None = None) -> int:
        return registered.register(subject, schema, schema_type)

    def schema(_: Registry, schema_id: int) -> str:
        return registered.text(schema_id)

    monkeypatch.setattr(Registry, "register", register)
    monkeypatch.setattr(Registry, "schema", schema)
    return registered
