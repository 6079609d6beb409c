"""What counts as an effect on the world outside, and whose it is."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from cdc_conformance.encoders.effects import effects


def test_writing_connecting_and_starting_are_effects(tmp_path: Path) -> None:
    with effects() as found:
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


def test_reading_and_what_other_threads_do_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    go = threading.Event()
    writing = threading.Thread(target=lambda: go.wait(30) and path.write_text("y"))
    writing.start()
    with effects() as found:
        path.read_text()
        go.set()
        writing.join()
    assert found == []
    path.write_text("z")
    assert found == []
