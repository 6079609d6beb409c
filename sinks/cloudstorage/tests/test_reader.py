"""Files as a consumer sees them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from cdc_sink_cloudstorage.reader import CloudStorageReader
from cdc_sink_cloudstorage.resolved_sink import CloudStorageResolvedSink
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_testing.cloud_rig import CloudRig, rows, slice_of
from fsspec.implementations.memory import MemoryFileSystem

from cdc_core import ConfigError, StoredMessage, Timestamp


@pytest.fixture(params=["file", "memory"])
def place(cloud: CloudRig, request: pytest.FixtureRequest) -> Iterator[str]:
    """URI of a sink."""
    yield f"file://{cloud.root}" if request.param == "file" else "memory://bucket/out"
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def keys(message: StoredMessage) -> list[int]:
    assert message.value is not None
    return [json.loads(line)[1] for line in message.value.splitlines()]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("partition_format", ["daily", "flat"])
def test_rows_and_marks_come_in_the_order_of_names(
    cloud: CloudRig, place: str, compression: str, partition_format: str
) -> None:
    made = cloud.context({"compression": compression, "partition_format": partition_format}, uri=place)
    cloud.destination(uri=place).prepare()
    reader = CloudStorageReader(made)
    assert list(reader.read()) == []
    sink, resolved_sink = CloudStorageSink(made), CloudStorageResolvedSink(made)
    later = Timestamp(1_585_961_087_000_000_000)
    sink.begin(slice_of(step=1, lower=later))
    sink.emit(rows([3], table="customers", wall=later.wall))
    sink.flush()
    resolved_sink.emit_resolved(later.prev())
    sink.begin(slice_of(step=0))
    sink.emit(rows([1, 2]))
    sink.flush()
    sink.begin(slice_of(step=2, lower=later))
    sink.emit(rows([9]))  # never flushed
    orders, mark, customers = reader.read()
    assert (orders.topic, keys(orders)) == ("orders", [1, 2])
    assert (mark.topic, mark.key, mark.value) == (None, None, f'{{"resolved":"{later.prev()}"}}'.encode())
    assert (customers.topic, customers.partition, keys(customers)) == ("customers", None, [3])
    assert list(reader.read()) == [orders, mark, customers]
    assert list(reader.endpoints()) == [(None, None)]
    sink.close()
    resolved_sink.close()
    reader.close()
    reader.close()


def test_other_files_and_unfinished_files_are_skipped(cloud: CloudRig) -> None:
    (cloud.root / ".inprogress").mkdir(parents=True)
    name = "202004022058072107140000000000000-0000000000000007-0000000000-00000-00000000-orders-1.lines.gz"
    (cloud.root / ".inprogress" / name).write_bytes(b"incomplete")
    (cloud.root / "README.txt").write_text("not ours")
    (cloud.root / name).write_bytes(gzip.compress(b"[1]"))
    assert list(CloudStorageReader(cloud.context()).read()) == [StoredMessage(topic="orders", value=b"[1]")]


def test_a_uri_without_a_bucket_is_refused(cloud: CloudRig) -> None:
    with pytest.raises(ConfigError, match="does not name a bucket"):
        list(CloudStorageReader(cloud.context(uri="s3:///path")).read())
