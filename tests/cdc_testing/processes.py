"""What can be asked of processes that may end at any moment, and what lies in sockets that nobody reads."""

from __future__ import annotations

from pathlib import Path

import psutil

from cdc_core.spark.python_forkserver import NAMES


def kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def tree(pid: int) -> list[psutil.Process]:
    """Return the process and all its descendants, itself first; nothing when it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def lives(process: psutil.Process) -> bool:
    """Return whether *process* runs. One that has ended, and whose parent has not noticed, does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(psutil.Process().memory_info().rss)


def name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def runs_tasks(process: psutil.Process) -> bool:
    """Return whether *process* is a Python worker of Spark, or what its like are forked from."""
    return name(process) == NAMES["pyspark.worker"] or "-m cdc_core.spark.daemon" in command(process)


_ESTABLISHED = "01"


def unread(port: int) -> dict[int, int]:
    """Return how many bytes the server at *port* has not read, by the port of the client that sent them."""
    found = {}
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:]:
            _, local, remote, state, queues, *_ = line.split()
            if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
                found[int(remote.rpartition(":")[2], 16)] = int(queues.partition(":")[2], 16)
    return found


def senders(port: int, processes: list[psutil.Process], *, at_least: int) -> list[psutil.Process]:
    """Return those of *processes* of which the server at *port* has so many bytes unread."""
    clients = {client for client, nbytes in unread(port).items() if nbytes >= at_least}
    return [process for process in processes if clients and clients & _ports(process)]


def _ports(process: psutil.Process) -> set[int]:
    try:
        return {connection.laddr.port for connection in process.net_connections("tcp") if connection.laddr}
    except psutil.NoSuchProcess:
        return set()
