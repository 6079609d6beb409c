"""Killing all processes of a session."""

from __future__ import annotations

import os
import subprocess
import sys

from cdc_core.engine.process_session import kill_session

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
