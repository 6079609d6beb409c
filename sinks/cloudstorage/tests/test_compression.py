from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
import zstandard
from cdc_sink_cloudstorage.compression import new_compressor
from cdc_testing.cloud_rig import CloudRig, rows, slice_of


def decompressed(data: bytes, extension: str) -> bytes:
    if extension == ".gz":
        return gzip.decompress(data)
    if extension == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    return data


@pytest.mark.parametrize(("compression", "extension"), [("none", ""), ("gzip", ".gz"), ("zstd", ".zst")])
def test_compressed_files_hold_the_same_rows_and_have_the_extension_in_their_names(
    cloud: CloudRig, compression: str, extension: str
) -> None:
    sink = cloud.sink({"compression": compression})
    sink.begin(slice_of())
    batches = [rows(range(number, number + 500)) for number in range(0, 3000, 500)]
    for batch in batches:
        sink.emit(batch)
    flushed = sink.flush()
    (path,) = cloud.visible()
    data = (cloud.root / path).read_bytes()
    assert path.endswith(f"-orders-1.lines{extension}")
    assert flushed.bytes == len(data)
    encoder = sink.context.encoder
    body = encoder.open_body("orders")
    assert decompressed(data, extension) == b"".join(bytes(body.write(batch)) for batch in batches)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_file_size_is_measured_after_compression(cloud: CloudRig, compression: str) -> None:
    sink = cloud.sink({"compression": compression, "file_size": "32KB"})
    sink.begin(slice_of())
    for number in range(40):
        sink.emit(rows([key * 7919 % 1_000_003 for key in range(number * 1000, number * 1000 + 1000)]))
    flushed = sink.flush()
    assert 2 <= flushed.files <= flushed.bytes // 32768 + 1
    raw = [decompressed((cloud.root / path).read_bytes(), Path(path).suffix) for path in cloud.visible()]
    assert len(raw[0]) > 2 * 32768
    assert sum(body.count(b"\n") for body in raw) == flushed.messages == 40_000


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compression_is_deterministic_and_writes_no_time(compression: str) -> None:
    def pack() -> bytes:
        compressor = new_compressor(compression)
        assert compressor is not None
        return b"".join(
            [compressor.compress(b"row %d\n" % number * 50) for number in range(1000)] + [compressor.flush()]
        )

    first = pack()
    assert pack() == first
    if compression == "gzip":
        assert first[4:8] == b"\0\0\0\0"
