"""A store in a file, and one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgressStore]:
    postgresql = request.param == "postgresql"
    store = ProgressStore(
        str(request.getfixturevalue("database")) if postgresql else store_url(tmp_path_factory.mktemp("store"))
    )
    yield store
    store.close()
