"""The cloud-storage sink keeps the promises of a sink at real object stores, killed, paused and begun again."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_sink_cloudstorage import s3
from cdc_testing.native_server import NativeServer
from cdc_testing.object_stores import SeaweedFS

from cdc_core.options import MB


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


class TestCloudStorageOnS3(OnAStore):
    """SeaweedFS, with signatures checked."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that is down is down at the first try."""
        monkeypatch.setitem(s3._CLIENT, "retries", {"mode": "standard", "max_attempts": 1})

    @pytest.fixture
    def sink_uri(self, seaweedfs: SeaweedFS) -> str:
        return seaweedfs.uri(f"conformance/{secrets.token_hex(4)}")

    @pytest.fixture
    def disturbance(self, seaweedfs: SeaweedFS) -> StoreDisturbance:
        return StoreDisturbance(seaweedfs)

    @pytest.fixture
    def unreachable_uri(self, seaweedfs: SeaweedFS) -> str:
        return seaweedfs.uri("x", AWS_ENDPOINT="http://127.0.0.1:9")

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """Secrets that are really used: others are refused before anything is connected to."""
        return [{"aws_secret_access_key": "{secret}"}, {"aws_session_token": "{secret}"}]
