"""The cloud-storage sink keeps the promises of a sink at a real blob storage, killed, paused and begun again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import pytest
from cdc_sink_cloudstorage import azure
from cdc_testing.object_stores import Azurite
from cdc_testing.store_conformance import OnAStore, StoreDisturbance


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
