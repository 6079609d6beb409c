"""Side effects of code are seen, and nothing else is; and what modules of a plugin import."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cdc_conformance.processes import assert_light
from cdc_conformance.side_effects import Background, descriptors, failure_of, until, watched

from cdc_core import SinkRegistration


def test_changes_of_files_are_seen_and_reads_are_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with watched() as effects:
        path.write_text("x")
        (tmp_path / "directory").mkdir()
        path.unlink()
    assert effects.changed == [str(path), str(tmp_path / "directory"), str(path)]
    with watched() as effects:
        Path(__file__).read_text()
        list(tmp_path.iterdir())
    assert str(effects) == "nothing"


def test_connections_processes_and_threads_are_seen() -> None:
    stop = threading.Event()
    with watched() as effects, socket.socket() as client:
        failure_of(lambda: client.connect(("127.0.0.1", 9)))
        subprocess.run([sys.executable, "-c", ""], check=True)
        thread = threading.Thread(target=stop.wait)
        thread.start()
        ended = threading.Thread(target=int)
        ended.start()
        ended.join()
    stop.set()
    thread.join()
    assert effects.connected == ["called socket.connect"]
    assert "called subprocess.Popen" in effects.started
    assert effects.threads == 2
    assert str(effects).endswith("started 2 threads")


def test_nothing_is_seen_after_the_block(tmp_path: Path) -> None:
    with watched() as effects:
        pass
    (tmp_path / "later").touch()
    assert str(effects) == "nothing"


def test_open_sockets_and_files_are_counted() -> None:
    before = descriptors()
    with socket.socket(), open(__file__), open(__file__):
        during = descriptors()
    assert during["sockets"] - before["sockets"] == 1
    assert during["files"] - before["files"] == 2


def test_until_waits_for_a_condition_but_not_for_ever() -> None:
    counted = iter(range(10))
    assert until(lambda: next(counted) == 3, within_s=120)
    assert not until(lambda: False, within_s=0)


def test_a_background_action_keeps_its_error() -> None:
    go = threading.Event()

    def fail() -> None:
        go.wait()
        raise ValueError("no")

    background = Background(fail)
    assert not background.ended(within_s=0)
    go.set()
    assert background.ended(within_s=120)
    assert isinstance(background.error, ValueError)


def test_a_failure_is_returned_and_an_interrupt_is_not() -> None:
    assert isinstance(failure_of(lambda: 1 // 0), ZeroDivisionError)
    assert failure_of(lambda: 1) is None

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failure_of(interrupt)


REGISTRATION = SinkRegistration(
    name="mine",
    summary="",
    options="",
    schemes=("mine",),
    sink="mine:Sink",
    resolved_sink="mine:ResolvedSink",
    destination="mine:Destination",
    output="messages",
)


@pytest.mark.parametrize(("imported", "found"), [("pyarrow.parquet", "pyarrow"), ("psutil", "psutil")])
def test_a_library_is_found_even_if_the_core_loads_other_parts_of_it(
    imported: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"with_{found}.py").write_text(f"import {imported}\nfrom cdc_core import RowBatch, SinkContext")
    monkeypatch.syspath_prepend(tmp_path)
    registration = replace(REGISTRATION, options=f"with_{found}:Options")
    with pytest.raises(AssertionError, match=rf"importing with_{found} also imports \['{found}'\]"):
        assert_light("sink", registration)
