"""The cloud-storage sink keeps the promises of a sink while a real blob storage is stopped, paused and started."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import pytest
from cdc_sink_cloudstorage import azure
from cdc_testing.disturbance import ServerDisturbance
from cdc_testing.object_stores import Azurite
from cdc_testing.store_conformance import ObjectStoreConformance

pytestmark = pytest.mark.slow


class TestCloudStorageOnAzure(ObjectStoreConformance):
    """Azurite, which checks signatures."""

    @pytest.fixture(autouse=True)
    def no_retries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Do not retry when the store is down."""
        monkeypatch.setitem(azure._RETRY, "retry_total", 0)

    @pytest.fixture
    def sink_uri(self, azurite: Azurite) -> str:
        return azurite.uri(f"conformance/{secrets.token_hex(4)}")

    @pytest.fixture
    def disturbance(self, azurite: Azurite) -> ServerDisturbance:
        """Stops Azurite instead of killing it: it writes its contents to disk only then, and every few seconds."""
        return ServerDisturbance(azurite, azurite.stop)

    @pytest.fixture
    def unreachable_uri(self, azurite: Azurite) -> str:
        return azurite.uri("x", AZURE_ENDPOINT="http://127.0.0.1:9/account")

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """A key that is not the account's, and a client secret."""
        principal = {"azure_client_id": "1", "azure_client_secret": "{secret}", "azure_tenant_id": "t"}
        return [{"azure_account_key": "{secret}"}, {"azure_account_key": "", **principal}]
