"""The conformance suite."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from cdc_conformance import RangefeedConformance


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


class TestTemplate(RangefeedConformance):
    rangefeed = "template"
    capabilities = frozenset({"before_images", "disturbance", "unreachable"})

    @pytest.fixture
    def rangefeed_uri(self, tmp_path: Path) -> str:
        (tmp_path / "journal").touch()
        return f"template://{tmp_path}/journal"

    @pytest.fixture
    def rangefeed_options(self) -> Mapping[str, str]:
        return {"idle_interval": "10ms", "batch_bytes": "8kB"}

    @pytest.fixture
    def disturbance(self, tmp_path: Path) -> Disturbance:
        return Disturbance(tmp_path / "journal")

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        return f"template://{tmp_path}/missing"

    @pytest.fixture
    def large_slice_bytes(self) -> int:
        return 60_000

    @pytest.fixture
    def many_rows(self) -> int:
        return 80
