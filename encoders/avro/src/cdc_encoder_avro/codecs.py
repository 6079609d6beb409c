"""Compresses and decompresses the blocks of object container files."""

from __future__ import annotations

import zlib

import pyarrow as pa

__all__ = ["compressed", "decompressed"]

_CRC_BYTES = 4


def compressed(data: bytes, codec: str) -> bytes:
    """Return *data*, the content of a block, compressed with *codec*."""
    if codec == "deflate":
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return compressor.compress(data) + compressor.flush()
    if codec == "zstandard":
        return bytes(pa.Codec("zstd").compress(data))
    if codec == "snappy":
        return bytes(pa.Codec("snappy").compress(data)) + _crc(data)
    return data


def decompressed(data: bytes, codec: str) -> bytes:
    """Return the content of a compressed block. Raises: ValueError for an unknown codec or damaged data."""
    if codec == "deflate":
        return zlib.decompress(data, wbits=-zlib.MAX_WBITS)
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    if codec == "snappy":
        block = bytes(pa.Codec("snappy").decompress(data[:-_CRC_BYTES], _snappy_size(data)))
        if _crc(block) != data[-_CRC_BYTES:]:
            raise ValueError("the checksum of a block is wrong")
        return block
    if codec != "null":
        raise ValueError(f"unknown codec '{codec}'")
    return data


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _snappy_size(data: bytes) -> int:
    """Return the length of the decompressed data: seven bits in each byte, the least significant first."""
    size = 0
    for place, byte in enumerate(data):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return size
