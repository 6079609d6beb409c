"""A file is visible only when it is whole, to concurrent readers and after a writer was killed."""

from __future__ import annotations

import gzip
import threading

from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_testing.cloud_rig import CloudRig, rows, slice_of


def test_a_reader_never_sees_part_of_a_file(cloud: CloudRig) -> None:
    sink = cloud.sink({"compression": "gzip", "file_size": "1KB"})
    batch = rows(range(500))
    done = threading.Event()
    faults: list[str] = []
    looks = 0

    def read() -> None:
        nonlocal looks
        while not done.is_set():
            for path in cloud.visible():
                try:
                    lines = gzip.decompress((cloud.root / path).read_bytes()).count(b"\n")
                except (EOFError, gzip.BadGzipFile) as error:
                    faults.append(f"{path}: {error}")
                else:
                    if lines % 500 or not lines:
                        faults.append(f"{path}: {lines} lines")
                looks += 1

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
    assert len(cloud.visible()) >= 20


def test_changefeeds_below_one_root_never_write_a_file_of_the_same_name(cloud: CloudRig) -> None:
    """They may begin at the same cursor, such as one that was created again."""
    for feed_id in ("4f8e21a9c073", "4f8e22a9c073"):
        sink = cloud.sink(epoch=1, feed_id=feed_id)
        sink.begin(slice_of())
        sink.emit(rows([1]))
        sink.flush()
    assert [f"{file.epoch:016x}" for file in cloud.data_files()] == ["4f8e210000000001", "4f8e220000000001"]


def test_a_file_that_an_earlier_attempt_writes_late_sorts_before_those_of_its_successor(cloud: CloudRig) -> None:
    earlier, later = cloud.sink(epoch=7), cloud.sink(epoch=8)
    for sink in (later, earlier):
        sink.begin(slice_of())
        sink.emit(rows([1]))
        sink.flush()
    assert [parsed.epoch for path in sorted(cloud.visible()) if isinstance(parsed := parse_name(path), DataFile)] == [
        7,
        8,
    ]
    assert cloud.destination().longest_call_s() == 0.0, "a successor need not wait"
