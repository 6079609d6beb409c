"""The cloud-storage sink keeps the promises of a sink while real object stores are killed, paused and started.

The sizes keep the tests small.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cdc_conformance.sinks.delivery import Crashes, Delivery, Flushes
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.failures import Failures, Stalls
from cdc_conformance.sinks.fixtures import SinkFixtures
from cdc_conformance.sinks.lifecycle import Destination, Leftovers
from cdc_conformance.sinks.options import Secrecy
from cdc_conformance.sinks.values import Resolved
from cdc_testing.disturbance import ServerDisturbance
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.object_stores import Azurite, SeaweedFS

from cdc_core import MB

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_retries")]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def place() -> str:
    return f"conformance/{secrets.token_hex(4)}"


class _Fixtures(SinkFixtures):
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


class _Client(Destination, Flushes, Crashes, Resolved, Failures, Stalls, Secrecy, Leftovers, _Fixtures):
    """The promises that a store's client can break: what files contain is the same in every store."""


class TestCloudStorageOnS3(Delivery, ExactlyOnce, _Client):
    """SeaweedFS, which checks signatures. This client also reads."""

    kind = "sink"

    @pytest.fixture
    def sink_uri(self, seaweedfs: SeaweedFS, place: str) -> str:
        return seaweedfs.uri(place)

    @pytest.fixture
    def disturbance(self, seaweedfs: SeaweedFS) -> ServerDisturbance:
        return ServerDisturbance(seaweedfs)

    @pytest.fixture
    def unreachable_uri(self, seaweedfs: SeaweedFS) -> str:
        return seaweedfs.uri("x", AWS_ENDPOINT=NOWHERE)

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """Secrets that reach the store: unused ones are refused before the sink connects."""
        return [{"aws_secret_access_key": "{secret}"}, {"aws_session_token": "{secret}"}]


class TestCloudStorageOnGcs(_Client):
    """fake-gcs-server behind a gate that checks tokens."""

    kind = "sink"

    @pytest.fixture
    def sink_uri(self, gcs_gate: GcsGate, place: str) -> str:
        return gcs_gate.uri(place)

    @pytest.fixture
    def disturbance(self, gcs_gate: GcsGate) -> ServerDisturbance:
        return ServerDisturbance(gcs_gate.store)

    @pytest.fixture
    def unreachable_uri(self, gcs_gate: GcsGate) -> str:
        return gcs_gate.uri("x", GCS_ENDPOINT=NOWHERE)

    @pytest.fixture
    def secret_options(self, gcs_gate: GcsGate) -> Sequence[Mapping[str, str]]:
        """A key file that Google did not issue."""
        info = json.loads(gcs_gate.credentials()) | {"private_key_id": "{secret}"}
        return [{"credentials": json.dumps(info)}, {"credentials": "{secret}"}]


class TestCloudStorageOnAzure(_Client):
    """Azurite, which checks signatures."""

    kind = "sink"

    @pytest.fixture
    def sink_uri(self, azurite: Azurite, place: str) -> str:
        return azurite.uri(place)

    @pytest.fixture
    def disturbance(self, azurite: Azurite) -> ServerDisturbance:
        """Stops Azurite instead of killing it: it writes its contents to disk only then, and every few seconds."""
        return ServerDisturbance(azurite, azurite.stop)

    @pytest.fixture
    def unreachable_uri(self, azurite: Azurite) -> str:
        return azurite.uri("x", AZURE_ENDPOINT=f"{NOWHERE}/account")

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """A key that is not the account's, and a client secret."""
        principal = {"azure_client_id": "1", "azure_client_secret": "{secret}", "azure_tenant_id": "t"}
        return [{"azure_account_key": "{secret}"}, {"azure_account_key": "", **principal}]
