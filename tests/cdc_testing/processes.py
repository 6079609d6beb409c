"""What can be asked of processes that may end at any moment."""

from __future__ import annotations

import psutil

from cdc_core.spark.python_forkserver import NAMES

__all__ = ["command", "kill", "name", "runs_tasks"]


def kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


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
