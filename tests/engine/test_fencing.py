from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cdc_testing.runs import eventually

from cdc_core.engine.fencing import RunLock, at_work, is_idle
from cdc_core.errors import RetryableError

HOLD = """
import sys, threading
from pathlib import Path
from cdc_core.engine.fencing import RunLock, at_work
path = Path(sys.argv[2])
if sys.argv[1] == "run":
    lock = RunLock(path)
    assert lock.acquire()
else:
    lock = at_work(path, run_dir=path.parent / "1")
    lock.__enter__()
print("held", flush=True)
sys.stdin.read()
"""


Hold = Callable[[str, Path], "subprocess.Popen[bytes]"]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts a process that holds a lock until it is killed."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(what: str, path: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", HOLD, what, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in processes:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_only_one_process_runs_a_changefeed_from_a_state_directory(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "t.lock"
    holder = hold("run", path)
    with RunLock(path) as lock:
        assert not lock.acquire()
        assert lock.holder == str(holder.pid)


def test_a_lock_that_cannot_be_written_is_named_and_may_be_tried_again() -> None:
    with RunLock(Path("/dev/full")) as lock, pytest.raises(RetryableError, match="lock '/dev/full' cannot be written"):
        lock.acquire()


def test_a_killed_driver_leaves_no_lock_behind(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "t.lock"
    end(hold("run", path))
    with RunLock(path) as lock:
        assert lock.acquire()
        assert lock.holder == str(os.getpid())


def test_tasks_at_work_keep_the_next_run_waiting(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / "t.tasks.lock"
    assert is_idle(path)
    workers = [hold("work", path), hold("work", path)]
    assert not is_idle(path)
    end(workers[0])
    assert not is_idle(path)
    end(workers[1])
    eventually("idle after both were killed", lambda: is_idle(path))


def test_asking_does_not_keep_tasks_from_work(tmp_path: Path) -> None:
    path = tmp_path / "t.tasks.lock"
    assert is_idle(path)
    with at_work(path, run_dir=tmp_path / "1"):
        assert not is_idle(path)
    assert is_idle(path)


def test_a_task_of_a_replaced_run_is_refused(tmp_path: Path) -> None:
    path, runs = tmp_path / "t.tasks.lock", tmp_path / "t.run"
    (runs / "10").mkdir(parents=True)
    with at_work(path, run_dir=runs / "10"):
        pass
    with pytest.raises(RetryableError, match="attempt 9 was superseded"), at_work(path, run_dir=runs / "9"):
        pass
    assert is_idle(path)


def test_a_host_without_the_state_directory_has_nothing_to_hold(tmp_path: Path) -> None:
    with at_work(tmp_path / "elsewhere" / "t.tasks.lock", run_dir=tmp_path / "elsewhere" / "1"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_may_not_see_the_drivers_directory_works_without_its_lock(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "t.run" / "1").mkdir(parents=True)
    code = (
        "import os, sys; from pathlib import Path; from cdc_core.engine.fencing import at_work\n"
        "state = Path(sys.argv[1]); os.setuid(65534)\n"
        "with at_work(state / 't.tasks.lock', run_dir=state / 't.run' / '1'): print('at work')"
    )
    state.chmod(0o700)
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    done = subprocess.run([sys.executable, "-c", code, str(state)], capture_output=True, text=True, check=True)
    assert done.stdout == "at work\n"
