"""Fixtures of object stores. A server that does not start fails the test; tests are never skipped for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.object_stores import Azurite, FakeGcs, SeaweedFS

__all__: list[str] = []


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    """An S3 store for the whole session. Tests that change it restore it, or start their own."""
    with SeaweedFS() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_gate() -> Iterator[GcsGate]:
    """A Google Cloud Storage that checks tokens, for the whole session."""
    with FakeGcs() as server, GcsGate(server) as gate:
        yield gate


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """An Azure Blob Storage for the whole session."""
    with Azurite() as server:
        yield server
