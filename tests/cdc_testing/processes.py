"""What can be asked of processes that may end at any moment."""

from __future__ import annotations

import psutil

__all__ = ["command", "cpu_s", "kill", "name", "parent_is"]


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


def cpu_s(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:
        return 0.0


def parent_is(process: psutil.Process, text: str) -> bool:
    try:
        parent = process.parent()
    except psutil.NoSuchProcess:
        return False
    return parent is not None and text in command(parent)
