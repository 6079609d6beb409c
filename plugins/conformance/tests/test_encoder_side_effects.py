"""The side effects that are recorded, and those that are not."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from cdc_conformance.encoders.side_effects import side_effects


def test_files_connections_and_threads_are_recorded(tmp_path: Path) -> None:
    with side_effects() as found:
        (tmp_path / "file").write_text("x")
        os.close(os.open(tmp_path / "file", os.O_RDWR))
        (tmp_path / "directory").mkdir()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=int)
        thread.start()
    thread.join()
    assert [what.partition("(")[0].partition(" ")[0] for what in found] == [
        "open",
        "open",
        "os.mkdir",
        "socket.bind",
        "thread",
    ]


def test_reads_and_other_threads_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    go = threading.Event()
    writing = threading.Thread(target=lambda: go.wait(30) and path.write_text("y"))
    writing.start()
    with side_effects() as found:
        path.read_text()
        go.set()
        writing.join()
    assert found == []
    path.write_text("z")
    assert found == []
