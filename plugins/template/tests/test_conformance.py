"""The conformance suite, also with the file missing, locked, or refusing rows."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cdc_conformance import SinkConformance


class Disturbance:
    def __init__(self, file: Path) -> None:
        self.file = file

    @contextmanager
    def broken(self) -> Iterator[None]:
        away = self.file.rename(self.file.with_suffix(".away"))
        try:
            yield
        finally:
            away.rename(self.file)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        with closing(sqlite3.connect(self.file)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def refusing(self, keys: Collection[bytes]) -> Iterator[None]:
        listed = ", ".join(f"x'{key.hex()}'" for key in keys)
        with closing(sqlite3.connect(self.file, isolation_level=None)) as other:
            refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END"
            other.execute(f"CREATE TRIGGER refusing BEFORE INSERT ON messages WHEN NEW.key IN ({listed}) {refuse}")
            try:
                yield
            finally:
                other.execute("DROP TRIGGER refusing")


class TestTemplate(SinkConformance):
    sink = "template"
    capabilities = frozenset({"disturbance", "stall", "refusal", "unreachable"})

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"template://{tmp_path}/messages?busy_timeout=200ms"

    @pytest.fixture
    def disturbance(self, tmp_path: Path) -> Disturbance:
        return Disturbance(tmp_path / "messages")

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        return f"template://{tmp_path}/missing/messages"
