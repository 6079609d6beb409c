"""What tasks are at, as their driver sees it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cdc_testing.engine import eventually

from cdc_core.telemetry.activity import COORDINATOR, SLICE, Activities, Activity, activity_directory, at_stages
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, stage

HOLD = """
import sys
from pathlib import Path
from cdc_core.telemetry.activity import SLICE, at_stages
from cdc_core.telemetry.stages import SINK, SOURCE, stage
with at_stages(SLICE, run_dir=Path(sys.argv[1]), first=SINK), stage(SOURCE):
    print("at work", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    activity_directory(tmp_path / "7").mkdir(parents=True)
    return tmp_path / "7"


def test_the_driver_sees_each_task_and_the_stage_it_is_at(run_dir: Path) -> None:
    activities = Activities(run_dir)
    assert activities.look() == []
    with at_stages(SLICE, run_dir=run_dir, first=SINK), stage(ENCODE):
        [activity] = activities.look()
        assert (activity.role, activity.stage) == (SLICE, ENCODE)
        with at_stages(COORDINATOR, run_dir=run_dir, first=SOURCE):
            assert [(each.role, each.stage) for each in activities.look()] == [(COORDINATOR, SOURCE), (SLICE, ENCODE)]
    assert activities.look() == []


def seen(activities: Activities) -> Activity:
    [activity] = activities.look()
    return activity


def test_a_task_that_is_stuck_is_seen_to_be_and_one_that_moves_is_not(run_dir: Path) -> None:
    activities = Activities(run_dir)
    with at_stages(SLICE, run_dir=run_dir, first=SINK):
        assert seen(activities).for_s == 0
        eventually(lambda: seen(activities).for_s > 0.1, what="a task that is stuck")
        with stage(SOURCE):
            pass
        assert seen(activities).for_s == 0
        eventually(lambda: seen(activities).for_s > 0.1, what="a task that is stuck again")
    with at_stages(SLICE, run_dir=run_dir, first=SINK):  # another task of the same process, as far as the first came
        assert seen(activities).for_s == 0


def test_a_killed_task_is_not_seen_any_more(run_dir: Path) -> None:
    activities = Activities(run_dir)
    command = [sys.executable, "-c", HOLD, str(run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        assert seen(activities).stage == SOURCE
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert activities.look() == []


def test_a_task_that_ended_leaves_no_file(run_dir: Path) -> None:
    with at_stages(SLICE, run_dir=run_dir, first=SINK):
        assert len(list(activity_directory(run_dir).iterdir())) == 1
    assert list(activity_directory(run_dir).iterdir()) == []


def test_the_files_of_killed_tasks_are_removed_and_those_of_others_are_not(run_dir: Path) -> None:
    activities = Activities(run_dir)
    killed, young = (activity_directory(run_dir) / f"{SLICE}-{number}" for number in (1, 2))
    for path in (killed, young):
        path.write_bytes(b"")
    with at_stages(COORDINATOR, run_dir=run_dir, first=SOURCE):
        for path in activity_directory(run_dir).iterdir():
            if path != young:
                os.utime(path, (0, 0))
        assert [each.role for each in activities.look()] == [COORDINATOR]
        assert {path.name for path in activity_directory(run_dir).iterdir()} == {
            young.name,
            f"{COORDINATOR}-{os.getpid()}",
        }


def test_a_file_that_is_removed_while_it_is_being_made_is_made_again(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_and_lock(file: int, how: int) -> None:
        monkeypatch.undo()
        [path] = activity_directory(run_dir).iterdir()
        path.unlink()
        fcntl.flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    with at_stages(SLICE, run_dir=run_dir, first=SINK):
        assert seen(Activities(run_dir)).stage == SINK


def test_a_host_without_the_runs_directory_measures_and_writes_nothing(tmp_path: Path) -> None:
    with at_stages(SLICE, run_dir=tmp_path / "elsewhere" / "7", first=SINK) as stages, stage(SOURCE):
        pass
    assert stages.seconds[SOURCE] > 0
    assert list(tmp_path.iterdir()) == []
    assert Activities(tmp_path / "elsewhere" / "7").look() == []
