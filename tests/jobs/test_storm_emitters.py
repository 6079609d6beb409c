"""What the storm says of a node that emits for a job which another node has taken over, and what it follows."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from cdc_sink_cloudstorage.names import DataFile, ResolvedFile
from cdc_testing.bulk_storm import follow
from cdc_testing.kafka_reading import Message
from cdc_testing.storm_emitters import HEADER, Freeze, late_files, late_messages

from cdc_core import Timestamp
from cdc_core.store.job_values import JobEvent

HISTORY = [
    JobEvent(at=100.0, state="running", reason="created"),
    JobEvent(at=101.0, state="running", reason="adopted", node="one"),
    JobEvent(at=110.0, state="running", reason="adopted", node="two"),
    JobEvent(at=120.0, state="running", reason="adopted", node="one"),
]


def test_messages_of_the_node_that_has_the_job_are_right() -> None:
    late = late_messages([_message("one", 102), _message("two", 111), _message("one", 121)], HISTORY, [])
    assert (late.wrong, late.after_a_thaw) == ([], 0)


def test_a_message_of_the_node_before_is_wrong() -> None:
    late = late_messages([_message("one", 102), _message("two", 111), _message("one", 112)], HISTORY, [])
    assert late.wrong == ["t/0@112 came from node 'one' 2.000 s after node 'two' had adopted the job"]


def test_the_call_in_which_a_node_was_frozen_ends_late() -> None:
    freezes = [Freeze("one", 105.0, 112.0)]
    late = late_messages([_message("one", 112.5)], HISTORY, freezes)
    assert (late.wrong, late.after_a_thaw) == ([], 1)
    assert late_messages([_message("one", 119)], HISTORY, freezes).wrong, "that is no single call any more"
    assert late_messages([_message("two", 121)], HISTORY, freezes).wrong, "it was not frozen"


def test_a_file_of_an_epoch_after_those_of_a_later_one_is_wrong(tmp_path: Path) -> None:
    _write(tmp_path, [_file(epoch=1, at=10), _file(epoch=2, at=10), _file(epoch=1, at=10, slice_index=1)])
    assert late_files(tmp_path, []).wrong == [], "it repeats the step of epoch 1"
    _write(tmp_path, [_file(epoch=2, at=20), _file(epoch=1, at=20)])
    assert len(late_files(tmp_path, []).wrong) == 1


def test_a_mark_that_goes_back_is_wrong(tmp_path: Path) -> None:
    _write(tmp_path, [ResolvedFile(timestamp=Timestamp(second)).name for second in (1, 3, 2)])
    assert len(late_files(tmp_path, []).wrong) == 1


def _message(node: str, at: float) -> Message:
    headers = ((HEADER, node.encode()),)
    return Message("t", 0, int(at), b"key", b"value", headers, int(at * 1000))


def _file(*, epoch: int, at: int, slice_index: int = 0) -> str:
    return DataFile(
        timestamp=Timestamp(at),
        epoch=epoch,
        step=1,
        slice_index=slice_index,
        counter=0,
        topic="t",
        schema_version=1,
        extension=".ndjson",
    ).name


def _write(directory: Path, names: list[str]) -> None:
    """Write the files so that each is younger than the one before."""
    pause = threading.Event()
    for name in names:
        path = directory / name
        path.touch()
        while any(
            other.stat().st_ctime_ns >= path.stat().st_ctime_ns for other in directory.iterdir() if other != path
        ):
            pause.wait(0.001)
            os.utime(path)


def _array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_versions_that_follow_each_other_and_repeats_are_accepted() -> None:
    newest = np.zeros(4, dtype=np.int64)
    assert follow(newest, _array(0, 1, 0, 0, 2), _array(3, 1, 4, 4, 9), "a job") == 1
    assert follow(newest, _array(0, 0, 0), _array(3, 4, 5), "a job") == 2
    assert newest.tolist() == [5, 1, 9, 0]


@pytest.mark.parametrize("versions", [(7,), (6, 8), (7, 6), (5, 6, 8)])
def test_a_version_that_is_left_out_or_late_is_found(versions: tuple[int, ...]) -> None:
    newest = _array(0, 5)
    with pytest.raises(AssertionError, match="left out or came too late, such as row 1"):
        follow(newest, _array(*[1] * len(versions)), _array(*versions), "a job")
