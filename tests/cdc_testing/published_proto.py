"""Message classes made from nothing but the published `changefeed.proto`, as a third party makes them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = importlib.util.find_spec("cdc_encoder_protobuf")
assert _PACKAGE is not None
assert _PACKAGE.origin is not None
PROTO = Path(_PACKAGE.origin).with_name("changefeed.proto")


@cache
def compiled() -> Any:
    """Return the `FileDescriptorSet` that protoc makes of the file and what it imports."""
    with TemporaryDirectory() as directory:
        out = Path(directory) / "set"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}", "--include_imports"]
        subprocess.run([*command, f"--descriptor_set_out={out}", PROTO.name], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


@cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in compiled().file:
        pool.Add(file)
    return pool


def message(name: str, data: bytes = b"") -> Any:
    """Return the message *name* in *data*. Fields that the file does not declare are an error."""
    found = message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"cdc.changefeed.{name}"))()
    found.ParseFromString(data)
    known = type(found)()
    known.CopyFrom(found)
    known.DiscardUnknownFields()
    assert known == found, f"{name} has fields that {PROTO.name} does not declare: {data!r}"
    return found


def delimited_messages(body: bytes) -> Iterator[Any]:
    """Yield the messages of a file, each of which stands behind its size."""
    place = 0
    while place < len(body):
        size = shift = 0
        while True:
            byte = body[place]
            place += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield message("Message", body[place : place + size])
        place += size
