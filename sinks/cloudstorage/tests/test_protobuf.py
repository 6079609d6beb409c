"""The examples of the page about Protocol Buffers read what a changefeed wrote, without any of our packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cdc_encoder_protobuf.encoder import ProtobufEncoder
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_testing.cloud_rig import CloudRig, slice_of
from cdc_testing.kafka_rows import rows
from cdc_testing.pages import Page
from cdc_testing.published_proto import PROTO, delimited_messages

from cdc_core import EncoderContext, Envelope, Timestamp

READ_MESSAGES, READ_FILES = Page("protobuf.md").blocks("python")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the classes that the command of the page makes."""
    directory = tmp_path_factory.mktemp("generated")
    (directory / PROTO.name).write_bytes(PROTO.read_bytes())
    (command,) = (line for line in Page("protobuf.md").blocks("console")[0].splitlines() if "protoc" in line)
    words = command.removeprefix("$ python ").split()
    subprocess.run([sys.executable, *words], cwd=directory, check=True)
    return directory


def output(directory: Path, script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def encoder(output: str) -> ProtobufEncoder:
    envelope = Envelope(updated=True, key_in_value=output == "files")
    context = EncoderContext(changefeed="feed", envelope=envelope, options=ProtobufOptions(), output=output)
    return ProtobufEncoder(context)


def test_the_example_reads_files(cloud: CloudRig, generated: Path) -> None:
    sink = cloud.sink(encoder=encoder("files"))
    sink.begin(slice_of())
    sink.emit(rows([1, 2], walls=[100, 200]))
    sink.emit(rows([1], walls=[300], deleted=[1]))
    sink.flush()
    wanted = [
        f"{key} {after} {Timestamp(wall)}" for key, after, wall in ((1, True, 100), (2, True, 200), (1, False, 300))
    ]
    assert output(generated, READ_FILES.replace("/data/out", str(cloud.root))) == wanted
    cloud.resolved_sink(encoder=encoder("files")).emit_resolved(Timestamp(400))
    (mark,) = cloud.root.rglob("*.RESOLVED")
    assert [message.resolved.resolved for message in delimited_messages(mark.read_bytes())] == [str(Timestamp(400))]


def test_the_example_reads_messages(generated: Path) -> None:
    batch = encoder("messages").encode(rows([1, 2], texts=["x", None], deleted=[]), topic="orders")
    deleted = encoder("messages").encode(rows([3], deleted=[3]), topic="orders")
    pairs: list[Any] = [
        *zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True),
        (deleted.key[0].as_py(), deleted.value[0].as_py()),
        (None, encoder("messages").encode_resolved("orders", Timestamp(1))),
    ]
    script = f"{READ_MESSAGES}\nfor key, value in {pairs!r}:\n    print(shown(key, value))"
    wanted = [{"id": 1, "text": "x"}, {"id": 2, "text": None}, {"id": 3, "deleted": True}, None]
    assert [eval(line) for line in output(generated, script)] == wanted
