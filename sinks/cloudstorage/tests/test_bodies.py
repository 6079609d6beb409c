"""Bodies of files that are not lines: compressed inside, held until the end, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from cdc_encoder_parquet.encoder import ParquetEncoder
from cdc_encoder_parquet.options import ParquetOptions
from cdc_testing.cloud_rig import CloudRig, rows, slice_of

from cdc_core import EncodeError, Encoder, EncoderContext, Envelope, FileBody, RowBatch

KB = 1024


class _HoldingBody(FileBody):
    """Returns no bytes before `finish`."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def write(self, rows: RowBatch) -> bytes:
        if -1 in rows.column("key").field("id").to_pylist():
            raise EncodeError("no such key")
        self.held_bytes += len(rows) * KB
        return b""

    def finish(self) -> bytes:
        held, self.held_bytes = self.held_bytes, 0
        return b"x" * held


@pytest.fixture
def holding(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch) -> Encoder:
    """An encoder whose bodies return no bytes before they are finished."""
    encoder = cloud.context().encoder
    monkeypatch.setattr(encoder, "open_body", lambda _: _HoldingBody())
    return encoder


def parquet(**fields: Any) -> Encoder:
    envelope = Envelope(updated=True, key_in_value=True)
    return ParquetEncoder(
        EncoderContext(changefeed="feed", envelope=envelope, options=ParquetOptions(), output="files", **fields)
    )


def test_bytes_that_bodies_hold_count_as_memory(cloud: CloudRig, holding: Encoder) -> None:
    sink = cloud.sink({"file_size": "64KB"}, encoder=holding)
    sink.begin(slice_of())
    most = 0
    for number in range(200):
        sink.emit(rows(range(10), table=f"t{number % 40}"))
        most = max(most, sink.buffered_bytes)
    assert 128 * KB < most <= 4 * 64 * KB
    flushed = sink.flush()
    assert flushed.messages == 2000
    assert flushed.bytes == 2000 * KB
    assert sink.buffered_bytes == 0


def test_a_file_without_rows_is_not_published(cloud: CloudRig, holding: Encoder) -> None:
    sink = cloud.sink(encoder=holding)
    sink.begin(slice_of())
    with pytest.raises(EncodeError):
        sink.emit(rows([-1]))
    assert sink.flush().files == 0
    assert cloud.data_files() == []
    sink.emit(rows([1]))
    with pytest.raises(EncodeError):
        sink.emit(rows([-1]))
    assert sink.flush().messages == 1


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_file_that_the_encoder_compresses_is_not_compressed_again(cloud: CloudRig, compression: str) -> None:
    sink = cloud.sink({"compression": compression}, encoder=parquet(compression=compression), compression="none")
    sink.begin(slice_of())
    sink.emit(rows([1, 2]))
    sink.flush()
    (name,) = cloud.data_files()
    assert name.extension == ".parquet"
    (path,) = cloud.root.rglob("*.parquet")
    body = path.read_bytes()
    assert body[:4] == body[-4:] == b"PAR1"
