"""The sink suites for real object stores, with sizes that keep the tests small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cdc_conformance.sinks.delivery import Crashes, Delivery, Flushes
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.failures import Failures, Stalls
from cdc_conformance.sinks.fixtures import SinkFixtures
from cdc_conformance.sinks.lifecycle import Destination, Leftovers
from cdc_conformance.sinks.options import Secrecy
from cdc_conformance.sinks.values import Resolved

from cdc_core import MB


class _Fixtures(SinkFixtures):
    """What the suites of S3, Google Cloud Storage and Azure share."""

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


class ObjectStoreConformance(_Client):
    """Those of a client."""

    kind = "sink"


class ReadStoreConformance(Delivery, ExactlyOnce, _Client):
    """Those of a client that also reads."""

    kind = "sink"
