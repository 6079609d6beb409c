"""A file is visible only when it is whole, to concurrent readers and after a writer was killed."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from cdc_sink_cloudstorage.destination import CloudStorageDestination
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import RowBatch, SliceInfo

DYING_WRITER = """
import signal, sys
from cdc_sink_cloudstorage.local import LocalStore
from cdc_sink_cloudstorage.temporary_names import TemporaryNames

def body():
    yield b"x" * 3_000_000
    print("half way", flush=True)
    signal.pause()

store = LocalStore(sys.argv[1], temporary_names=TemporaryNames(changefeed="feed", epoch=1))
store.put("2020-01-01/whole", [b"a whole file"])
store.put("2020-01-01/incomplete", body())
"""


def test_a_reader_never_sees_part_of_a_file(
    open_sink: Callable[..., CloudStorageSink],
    rows: Callable[..., RowBatch],
    slice_of: Callable[..., SliceInfo],
    visible: Callable[[], list[str]],
    root: Path,
) -> None:
    sink = open_sink({"compression": "gzip", "file_size": "1KB"})
    batch = rows(range(500))
    done = threading.Event()
    faults: list[str] = []
    looks = 0

    def read() -> None:
        nonlocal looks
        while not done.is_set():
            for path in visible():
                try:
                    lines = gzip.decompress((root / path).read_bytes()).count(b"\n")
                except (EOFError, gzip.BadGzipFile) as error:
                    faults.append(f"{path}: {error}")
                else:
                    if lines % 500 or not lines:
                        faults.append(f"{path}: {lines} lines")
                looks += 1

    root.mkdir()
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for step in range(20):
            sink.begin(slice_of(step=step))
            for _ in range(5):
                sink.emit(batch)
            sink.flush()
    finally:
        done.set()
        reader.join()
    assert faults == []
    assert looks > 0
    assert len(visible()) >= 20


def test_a_file_that_an_earlier_attempt_writes_late_sorts_before_those_of_its_successor(
    open_sink: Callable[..., CloudStorageSink],
    open_destination: Callable[..., CloudStorageDestination],
    slice_of: Callable[..., SliceInfo],
    visible: Callable[[], list[str]],
    rows: Callable[..., RowBatch],
) -> None:
    earlier, later = open_sink(epoch=7), open_sink(epoch=8)
    for sink in (later, earlier):
        sink.begin(slice_of())
        sink.emit(rows([1]))
        sink.flush()
    assert [parsed.epoch for path in sorted(visible()) if isinstance(parsed := parse_name(path), DataFile)] == [7, 8]
    assert open_destination().longest_call_s() == 0.0, "a successor need not wait"


def test_a_killed_writer_leaves_nothing_visible_and_the_next_attempt_cleans_up(
    open_sink: Callable[..., CloudStorageSink],
    slice_of: Callable[..., SliceInfo],
    visible: Callable[[], list[str]],
    root: Path,
) -> None:
    command = [sys.executable, "-c", DYING_WRITER, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half way\n"
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    assert visible() == ["2020-01-01/whole"]
    assert len(list((root / ".inprogress").iterdir())) == 1
    sink = open_sink(epoch=2)
    sink.begin(slice_of())
    sink.flush()
    assert list((root / ".inprogress").iterdir()) == []
    assert visible() == ["2020-01-01/whole"]
