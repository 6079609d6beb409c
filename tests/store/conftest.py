"""A store in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_core.store.progress import ProgressStore, store_url


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    store = ProgressStore(store_url(tmp_path / "state"))
    yield store
    store.close()
