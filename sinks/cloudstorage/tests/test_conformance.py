"""The cloud-storage sink keeps the promises of a sink: as lines, as compressed Avro, as Parquet, and in memory."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_conformance.reference.partitions import DirectoryDisturbance
from cdc_conformance.sinks.delivery import Crashes, Delivery, Flushes
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.failures import Failures
from cdc_conformance.sinks.fixtures import SinkFixtures
from cdc_conformance.sinks.lifecycle import Leftovers
from cdc_conformance.sinks.unencodable import DeadLetters, Unencodable
from cdc_conformance.sinks.values import Values
from cdc_testing.cloud_rig import CloudRig
from fsspec.implementations.memory import MemoryFileSystem


class TestLines(SinkConformance):
    """Lines of JSON in a directory."""

    sink = "cloudstorage"
    capabilities = frozenset({"disturbance", "unreachable"})

    @pytest.fixture
    def sink_uri(self, cloud: CloudRig) -> str:
        return f"file://{cloud.root}"

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        (tmp_path / "file").touch()
        return f"file://{tmp_path}/file/out"

    @pytest.fixture
    def disturbance(self, cloud: CloudRig) -> DirectoryDisturbance:
        return DirectoryDisturbance(cloud.root)


class FormatConformance(
    Values, Delivery, Flushes, Crashes, ExactlyOnce, Failures, Unencodable, DeadLetters, Leftovers, SinkFixtures
):
    """The promises that a format can break: what is in files, and when it is there."""

    kind = "sink"
    sink = "cloudstorage"
    capabilities = frozenset({"disturbance"})

    @pytest.fixture
    def sink_uri(self, cloud: CloudRig) -> str:
        return f"file://{cloud.root}"

    @pytest.fixture
    def disturbance(self, cloud: CloudRig) -> DirectoryDisturbance:
        return DirectoryDisturbance(cloud.root)


class TestCompressedAvro(FormatConformance):
    """Compressed object container files: at least one for each flush and each schema version."""

    @pytest.fixture
    def sink_format(self) -> str:
        return "avro"

    @pytest.fixture
    def sink_options(self) -> Mapping[str, Any]:
        return {"compression": "zstd", "partition_format": "flat", "file_size": "4KB"}


class TestParquet(FormatConformance):
    """Files that are compressed inside, and whose bytes are final only when a row group is full."""

    @pytest.fixture
    def sink_format(self) -> str:
        return "parquet"

    @pytest.fixture
    def sink_options(self) -> Mapping[str, Any]:
        return {"compression": "zstd", "parquet_row_group_size": "2KB"}


class TestMemory(SinkConformance):
    """An object store that exists in one process only."""

    sink = "cloudstorage"

    @pytest.fixture
    def sink_uri(self) -> Iterator[str]:
        yield f"memory://bucket/{secrets.token_hex(4)}"
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]

    @pytest.fixture
    def other_processes(self) -> bool:
        return False
