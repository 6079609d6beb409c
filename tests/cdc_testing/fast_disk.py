"""Temporary files of a test run in memory: servers and stores of tests create, sync and remove small files.

A database that a test creates and drops takes a quarter of the processor time that it takes on a disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

__all__: list[str] = []

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 10 << 30  # the slow tests leave 6 GiB there
_PREFIX = "cdc-tests-"


def pytest_configure(config: pytest.Config) -> None:
    """Use memory in the first process of a run and in those that it starts, if there is enough and TMPDIR is not set.

    What a run that failed has left stays until the next one.
    """
    if "TMPDIR" in os.environ:
        return
    for path in _MEMORY.glob(f"{_PREFIX}*"):  # before it is asked how much room there is
        if not Path("/proc", path.name.removeprefix(_PREFIX)).is_dir():
            shutil.rmtree(path, ignore_errors=True)
    if not _is_suitable():
        return
    directory = _MEMORY / f"{_PREFIX}{os.getpid()}"
    directory.mkdir(mode=0o755)  # servers of another account enter it
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
    config.add_cleanup(lambda: _remove(config, directory))


def _is_suitable() -> bool:
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return False
    found = os.statvfs(_MEMORY)
    # Java loads libraries that it has unpacked there.
    return found.f_bavail * found.f_frsize >= _ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC


_FAILED = pytest.StashKey[bool]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_FAILED] = exitstatus != pytest.ExitCode.OK


def _remove(config: pytest.Config, directory: Path) -> None:
    if not config.stash.get(_FAILED, False):
        shutil.rmtree(directory, ignore_errors=True)
