"""The cloud-storage sink keeps the promises of a sink while fake-gcs-server is killed, paused and started."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

import pytest
from cdc_testing.disturbance import ServerDisturbance
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.store_conformance import ObjectStoreConformance

pytestmark = pytest.mark.slow


class TestCloudStorageOnGcs(ObjectStoreConformance):
    """fake-gcs-server behind a gate that checks tokens."""

    @pytest.fixture(autouse=True)
    def no_retries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Do not retry when the store is down: gcsfs would retry for half a minute."""
        monkeypatch.setattr("gcsfs.retry.is_retriable", lambda _: False)

    @pytest.fixture
    def sink_uri(self, gcs_gate: GcsGate) -> str:
        return gcs_gate.uri(f"conformance/{secrets.token_hex(4)}")

    @pytest.fixture
    def disturbance(self, gcs_gate: GcsGate) -> ServerDisturbance:
        return ServerDisturbance(gcs_gate.store)

    @pytest.fixture
    def unreachable_uri(self, gcs_gate: GcsGate) -> str:
        return gcs_gate.uri("x", GCS_ENDPOINT="http://127.0.0.1:9")

    @pytest.fixture
    def secret_options(self, gcs_gate: GcsGate) -> Sequence[Mapping[str, str]]:
        """A key file that Google did not issue."""
        info = json.loads(gcs_gate.credentials()) | {"private_key_id": "{secret}"}
        return [{"credentials": json.dumps(info)}, {"credentials": "{secret}"}]
