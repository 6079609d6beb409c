"""What the processes of an attempt tell each other."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.runs import eventually

from cdc_core import Timestamp
from cdc_core.delivery.tracing import TraceRequest
from cdc_core.engine.attempt_channel import COORDINATOR, SLICE, Activity, AttemptChannel, Saved
from cdc_core.engine.driver_log import AttemptLog
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, stage

OTHER_PROCESS = """
import logging, sys
from pathlib import Path
from cdc_core import Timestamp
from cdc_core.engine.attempt_channel import SLICE, AttemptChannel, Saved
from cdc_core.telemetry.stages import SINK, SOURCE, stage
channel = AttemptChannel(Path(sys.argv[1]))
with (
    channel.at_stages(SLICE, first=SINK) as stages,
    stage(SOURCE),
    stages.repeating("it hangs", next_attempt_s=7),
):
    channel.publish_saved(Saved(3, Timestamp(5), Timestamp(7)))
    channel.publish_source_warning("the slot is behind")
    channel.publish_hosts({"b": 1, "a": 2})
    with channel.collected_warnings():
        logging.getLogger("cdc_rangefeed_postgres").warning("nothing is resolved\\nwhile %s is locked", "orders")
    print(channel.rescans(), *channel.traces(), flush=True)
    while not channel.stop_requested:
        channel.wait_for_stop(60)
    channel.acknowledge_stop()
    print("stopped", flush=True)
    sys.stdin.read()
"""
NOTHING = [None, None, {}, "", (), [], [], False, False]
REQUEST = TraceRequest(number=1, table="orders", key=None, most=2)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    AttemptChannel(tmp_path / "7").create()
    return tmp_path / "7"


@pytest.fixture
def channel(run_dir: Path) -> AttemptChannel:
    return AttemptChannel(run_dir)


def messages(channel: AttemptChannel) -> list[object]:
    told = [channel.saved(), channel.source_warning(), channel.hosts(), channel.rescans(), channel.traces()]
    return [*told, channel.warnings(), channel.activities(), channel.stop_requested, channel.stop_acknowledged]


def test_messages_pass_between_processes_until_one_of_them_is_killed(run_dir: Path, channel: AttemptChannel) -> None:
    channel.publish_rescans("1 now")
    channel.publish_traces('[{"number":1,"table":"orders","key":null,"most":2}]')
    command = [sys.executable, "-c", OTHER_PROCESS, str(run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"1 now {REQUEST}\n"
        assert channel.saved() == Saved(3, Timestamp(5), Timestamp(7))
        assert channel.source_warning() == "the slot is behind"
        assert channel.hosts() == {"a": 2, "b": 1}
        assert channel.warnings() == ["nothing is resolved while orders is locked"]
        [activity] = channel.activities()
        assert (activity.role, activity.process, activity.stage) == (SLICE, process.pid, SOURCE)
        assert activity.repeat is not None
        assert activity.repeat.reason == "it hangs"
        assert not channel.stop_acknowledged
        channel.request_stop()
        assert process.stdout.readline() == "stopped\n"
        assert channel.stop_acknowledged
        process.kill()
        process.wait()
        assert channel.activities() == []


def test_before_the_first_message_there_is_none_and_a_later_one_replaces_it(channel: AttemptChannel) -> None:
    assert messages(channel) == NOTHING
    for saved in (Saved(1_000_000, Timestamp(10**18, 1), Timestamp(10**18, 2)), Saved(2, Timestamp(1), Timestamp(3))):
        channel.publish_saved(saved)
        assert channel.saved() == saved
    for asked in ("a long one\n", "", "2"):
        channel.publish_rescans(asked)
        assert channel.rescans() == asked


def test_a_source_warning_is_written_when_it_is_new_and_taken_back_by_another_process(
    run_dir: Path, channel: AttemptChannel
) -> None:
    channel.publish_source_warning("it is behind")
    (run_dir / "source-warning").unlink()
    channel.publish_source_warning("it is behind")
    assert channel.source_warning() is None
    channel.publish_source_warning("it is far behind")
    AttemptChannel(run_dir).publish_source_warning(None)
    assert channel.source_warning() is None


def test_each_warning_is_logged_once_by_the_driver_and_no_log_repeats_itself(
    tmp_path: Path, channel: AttemptChannel, caplog: pytest.LogCaptureFixture
) -> None:
    attempt_log = AttemptLog(counter_feed(tmp_path), channel)
    planner = logging.getLogger("cdc_rangefeed_postgres.planner")
    with channel.collected_warnings():
        planner.info("scan: started")
        logging.getLogger("py4j.clientserver").warning("closing")
        for text in ("orders is locked", "again"):
            planner.error(text)
            caplog.clear()
            attempt_log.repeat_warnings()
            attempt_log.repeat_warnings()
            assert caplog.messages == [f"changefeed 't': {text}"]
    planner.warning("too late")
    assert channel.warnings() == []


def test_the_driver_sees_each_task_and_the_stage_it_is_at(channel: AttemptChannel) -> None:
    def work() -> None:
        with channel.at_stages(SLICE, first=SINK):  # a second slice in this process
            found.extend(channel.activities())

    found: list[Activity] = []
    other = threading.Thread(target=work)
    with channel.at_stages(SLICE, first=SINK), stage(ENCODE):
        with channel.at_stages(COORDINATOR, first=SOURCE):
            other.start()
            other.join()
        assert [(each.role, each.stage) for each in channel.activities()] == [(SLICE, ENCODE)]
    assert sorted((each.role, each.stage) for each in found) == [(COORDINATOR, SOURCE), (SLICE, ENCODE), (SLICE, SINK)]


def seen(channel: AttemptChannel) -> Activity:
    [activity] = channel.activities()
    return activity


def test_a_task_that_is_stuck_is_seen_to_be_and_one_that_moves_is_not(channel: AttemptChannel) -> None:
    with channel.at_stages(SLICE, first=SINK):
        assert seen(channel).for_s == 0
        eventually("a task that is stuck", lambda: seen(channel).for_s > 0.1)
        with stage(SOURCE):
            pass
        assert seen(channel).for_s == 0
        eventually("a task that is stuck again", lambda: seen(channel).for_s > 0.1)
    with channel.at_stages(SLICE, first=SINK):  # another task of the same process, as far as the first came
        assert seen(channel).for_s == 0


def test_the_files_of_ended_and_killed_tasks_are_removed_and_those_of_others_are_not(
    run_dir: Path, channel: AttemptChannel
) -> None:
    directory = run_dir / "activity"
    killed, young = (directory / f"{SLICE}-{number}-1" for number in (1, 2))
    for path in (killed, young):
        path.write_bytes(b"")
    with channel.at_stages(COORDINATOR, first=SOURCE):
        for path in directory.iterdir():
            if path != young:
                os.utime(path, (0, 0))
        assert seen(channel).role == COORDINATOR
        assert sorted(path.name.split("-")[0] for path in directory.iterdir()) == [COORDINATOR, SLICE]
    assert list(directory.iterdir()) == [young]


def test_a_file_that_is_removed_while_it_is_being_made_is_made_again(
    run_dir: Path, channel: AttemptChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_and_lock(file: int, how: int) -> None:
        monkeypatch.undo()
        [path] = (run_dir / "activity").iterdir()
        path.unlink()
        fcntl.flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    with channel.at_stages(SLICE, first=SINK):
        assert seen(channel).stage == SINK


def test_a_process_without_the_drivers_directory_writes_and_reads_nothing(tmp_path: Path) -> None:
    channel = AttemptChannel(tmp_path / "elsewhere" / "7")
    with channel.at_stages(SLICE, first=SINK) as stages, stage(SOURCE):
        channel.publish_saved(Saved(1, Timestamp(1), Timestamp(1)))
        channel.publish_source_warning("it is behind")
        channel.publish_hosts({"a": 1})
        channel.warn("lost")
        channel.acknowledge_stop()
    assert stages.seconds[SOURCE] > 0
    assert list(tmp_path.iterdir()) == []
    assert messages(channel) == NOTHING
