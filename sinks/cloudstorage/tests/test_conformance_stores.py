"""The cloud-storage sink keeps the promises of a sink at real object stores, killed, paused and begun again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_sink_cloudstorage import azure, s3
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.native_server import NativeServer
from cdc_testing.object_stores import Azurite, SeaweedFS

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


class TestCloudStorageOnGcs(OnAStore):
    """fake-gcs-server behind a door that lets in whom it gave a token."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that is down is down at the first try: gcsfs would try for half a minute."""
        monkeypatch.setattr("gcsfs.retry.is_retriable", lambda _: False)

    @pytest.fixture
    def sink_uri(self, gcs_gate: GcsGate) -> str:
        return gcs_gate.uri(f"conformance/{secrets.token_hex(4)}")

    @pytest.fixture
    def disturbance(self, gcs_gate: GcsGate) -> StoreDisturbance:
        return StoreDisturbance(gcs_gate.store)

    @pytest.fixture
    def unreachable_uri(self, gcs_gate: GcsGate) -> str:
        return gcs_gate.uri("x", GCS_ENDPOINT="http://127.0.0.1:9")

    @pytest.fixture
    def secret_options(self, gcs_gate: GcsGate) -> Sequence[Mapping[str, str]]:
        """A key file that Google never gave out."""
        info = json.loads(gcs_gate.credentials()) | {"private_key_id": "{secret}"}
        return [{"credentials": json.dumps(info)}, {"credentials": "{secret}"}]


class TestCloudStorageOnAzure(OnAStore):
    """Azurite, with signatures checked."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that is down is down at the first try."""
        monkeypatch.setitem(azure._RETRY, "retry_total", 0)

    @pytest.fixture
    def sink_uri(self, azurite: Azurite) -> str:
        return azurite.uri(f"conformance/{secrets.token_hex(4)}")

    @pytest.fixture
    def disturbance(self, azurite: Azurite) -> StoreDisturbance:
        """Azurite writes down what it has when it ends in order, and every few seconds."""
        return StoreDisturbance(azurite, in_order=True)

    @pytest.fixture
    def unreachable_uri(self, azurite: Azurite) -> str:
        return azurite.uri("x", AZURE_ENDPOINT="http://127.0.0.1:9/account")

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """A key that is no key of the account's, and one that could be none."""
        principal = {"azure_client_id": "1", "azure_client_secret": "{secret}", "azure_tenant_id": "t"}
        return [{"azure_account_key": "{secret}"}, {"azure_account_key": "", **principal}]
