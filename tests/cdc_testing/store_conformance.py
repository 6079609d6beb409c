"""What the sink suites at real object stores have in common: what befalls a store, and how small all is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_testing.native_server import NativeServer

from cdc_core.options import MB

__all__ = ["OnAStore", "StoreDisturbance"]


class StoreDisturbance:
    """What can happen to a store."""

    def __init__(self, server: NativeServer, *, in_order: bool = False) -> None:
        self._server = server
        self._end = server.stop if in_order else server.kill

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The store was killed; afterwards another process answers at its address, with what was on disk."""
        self._end()
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The store keeps its connections and answers nothing."""
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()


class OnAStore(SinkConformance):
    """What the three have in common."""

    __test__ = False
    sink = "cloudstorage"

    @pytest.fixture
    def sink_options(self) -> Mapping[str, Any]:
        return {"partition_format": "flat", "file_size": "1MB", "upload_buffer": "4MB"}

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        return {"disturbance", "stall", "unreachable"}

    @pytest.fixture
    def settle_s(self) -> float:
        """Clients keep a thread for the process, which the suite waits for a while to end."""
        return 3.0

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """Open files, files on their way twice over (a request has its own copy), a batch, and what clients hold."""
        return 40 * MB
