"""The cloud-storage sink keeps the promises of a sink while a real S3 store is killed, paused and started."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import pytest
from cdc_sink_cloudstorage import s3
from cdc_testing.disturbance import ServerDisturbance
from cdc_testing.object_stores import SeaweedFS
from cdc_testing.store_conformance import ReadStoreConformance

pytestmark = pytest.mark.slow


class TestCloudStorageOnS3(ReadStoreConformance):
    """SeaweedFS, which checks signatures."""

    @pytest.fixture(autouse=True)
    def no_retries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Do not retry when the store is down."""
        monkeypatch.setitem(s3._CLIENT, "retries", {"mode": "standard", "max_attempts": 1})

    @pytest.fixture
    def sink_uri(self, seaweedfs: SeaweedFS) -> str:
        return seaweedfs.uri(f"conformance/{secrets.token_hex(4)}")

    @pytest.fixture
    def disturbance(self, seaweedfs: SeaweedFS) -> ServerDisturbance:
        return ServerDisturbance(seaweedfs)

    @pytest.fixture
    def unreachable_uri(self, seaweedfs: SeaweedFS) -> str:
        return seaweedfs.uri("x", AWS_ENDPOINT="http://127.0.0.1:9")

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """Secrets that reach the store: unused ones are refused before the sink connects."""
        return [{"aws_secret_access_key": "{secret}"}, {"aws_session_token": "{secret}"}]
