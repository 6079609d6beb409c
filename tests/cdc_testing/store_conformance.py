"""The sink suite for real object stores: how a store is disturbed, and sizes that keep the tests small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_testing.native_server import NativeServer

from cdc_core import MB

__all__ = ["ObjectStoreConformance", "StoreDisturbance"]


class StoreDisturbance:
    """Breaks and stalls a store. With *in_order* the server is stopped instead of killed."""

    def __init__(self, server: NativeServer, *, in_order: bool = False) -> None:
        self._server = server
        self._end = server.stop if in_order else server.kill

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The server has ended. Afterwards another process serves the same address and the same files."""
        self._end()
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The server keeps its connections and does not respond."""
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()


class ObjectStoreConformance(SinkConformance):
    """The part of the suite that S3, Google Cloud Storage and Azure share."""

    __test__ = False
    sink = "cloudstorage"
    capabilities = frozenset({"disturbance", "stall", "unreachable"})

    @pytest.fixture
    def sink_options(self) -> Mapping[str, Any]:
        return {"partition_format": "flat", "file_size": "1MB", "upload_buffer": "4MB"}

    @pytest.fixture
    def settle_s(self) -> float:
        """Clients keep one thread in the process, and the suite waits this long for it to end."""
        return 3.0

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """Open files, uploads twice (a request has its own copy), one batch, and the memory of the clients."""
        return 40 * MB
