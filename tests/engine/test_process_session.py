"""The session of a host: starting it, and killing all of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.host_session import HostSession
from cdc_core.engine.process_session import kill_session
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import TerminalError
from cdc_core.timestamp import Timestamp

FAMILY = """
import os, subprocess, sys
code = "import os, sys, time; os.setpgid(0, 0); print('ready', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
{then}
"""


def family(then: str) -> tuple[subprocess.Popen[bytes], int]:
    """Return the first process of a session, and the number of its child, which has a process group of its own."""
    command = [sys.executable, "-c", FAMILY.format(then=then)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert first.stdout is not None
    with first.stdout:
        return first, int(first.stdout.readline())


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] not in "ZX"


def test_a_process_group_of_its_own_saves_no_process() -> None:
    first, child = family("child.wait()")
    assert kill_session(first.pid)
    assert first.wait() == -9
    assert not lives(child)


def test_the_children_of_a_process_that_has_ended_are_found() -> None:
    first, child = family("")
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    assert lives(child)
    assert kill_session(first.pid)
    assert not lives(child)
    first.wait()


def test_one_process_may_be_spared() -> None:
    first, child = family("import time; time.sleep(600)")
    assert kill_session(first.pid, but=first.pid)
    assert not lives(child)
    assert lives(first.pid)
    kill_session(first.pid)
    first.wait()


def session(*, is_local: bool = False, delivered: Any = None) -> tuple[HostSession, list[AttemptConfig]]:
    """Return the session of a run that has *delivered* so much, and what its host is asked to warm up."""
    warmed: list[AttemptConfig] = []
    host = SimpleNamespace(
        is_local=is_local, is_shared=False, is_alive=True, warm_up=lambda config, **_: warmed.append(config)
    )
    control = SimpleNamespace(stop=SimpleNamespace(is_set=lambda: False))
    status = SimpleNamespace(say=lambda **_: None)
    feed = SimpleNamespace(secrets=frozenset)
    run: Any = SimpleNamespace(
        host=host, control=control, status=status, feed=feed, delivered=lambda: delivered, check_stop=lambda: None
    )
    return HostSession(run), warmed


@pytest.mark.parametrize(
    ("is_local", "delivered", "warms"),
    [
        (False, (0.0, Timestamp()), 1),
        (False, None, 1),
        (False, (7.0, Timestamp()), 0),
        (False, (0.0, Timestamp(9)), 0),
        (True, (7.0, Timestamp(9)), 1),
    ],
)
def test_what_has_delivered_before_needs_no_step_without_rows_on_a_cluster(
    tmp_path: Any, is_local: bool, delivered: Any, warms: int
) -> None:
    host_session, warmed = session(is_local=is_local, delivered=delivered)
    config = AttemptConfig(feed=counter_feed(tmp_path), state_dir=tmp_path, run_dir=tmp_path)
    for _ in range(2):
        host_session.warm_up(config)
    assert len(warmed) == warms


def test_a_cluster_that_is_out_of_reach_ends_no_changefeed_for_good() -> None:
    host_session, _ = session()
    outage = QueryHostError("no executor started", outage=True)
    with pytest.raises(QueryHostError) as raised:
        host_session.raise_if_fatal_on_start(outage)
    assert raised.value is outage
    with pytest.raises(TerminalError, match="Spark cannot run: it broke"):
        host_session.raise_if_fatal_on_start(QueryHostError("it broke"))
