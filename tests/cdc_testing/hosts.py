"""Hosts on this machine: network namespaces at one bridge, each with an address, a name and a disk. Needs root."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

OUTSIDE, STORE = "10.77.0.254", "10.77.0.253"
"""Addresses of this process for the hosts, for what is not the store and what is."""
_BRIDGE = "cdc-hosts"
_MOUNTS = {"tmp": "tmp", "hosts": "etc/hosts"}
_NOWHERE = "02:00:00:00:00:77"


class Bridge:
    """A context manager: what hosts are connected by, and reach this process at OUTSIDE and STORE by."""

    def __enter__(self) -> Self:
        with suppress(subprocess.CalledProcessError):  # of a process that was killed
            _run("ip", "link", "del", _BRIDGE)
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        for address in (OUTSIDE, STORE):
            _run("ip", "addr", "add", f"{address}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        return self

    def __exit__(self, *_: object) -> None:
        _run("ip", "link", "del", _BRIDGE)


class Host:
    """A context manager: host *name* with *number* at the bridge. Leaving it kills all of its processes.

    Its disk is `NAME` in *directory*, with its /tmp. It does not see those of the other *names*.
    """

    def __init__(self, name: str, number: int, directory: Path, names: Sequence[str]) -> None:
        self.name, self.address = name, f"10.77.0.{number}"
        self._space, self._link = f"cdc-{name}", f"cdc-veth{number}"
        self._disk = directory / name
        self._others = [directory / other for other in names if other != name]

    @property
    def within(self) -> Sequence[str]:
        """The command that runs another one on the host, as the same process."""
        (self._disk / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        commands = [["mount", "-t", "tmpfs", "tmpfs", str(other)] for other in self._others]
        commands += [["mount", "--bind", str(self._disk / name), f"/{there}"] for name, there in _MOUNTS.items()]
        script = " && ".join(map(shlex.join, [*commands, ["hostname", self.name]])) + ' && exec "$0" "$@"'
        unshared = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script]
        return ["ip", "netns", "exec", self._space, *unshared]

    def pids(self) -> list[int]:
        """Return all processes of the host."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self._space).split()]

    def kill(self) -> None:
        """End all processes, as a host that loses its power."""
        while pids := self.pids():
            _signal(pids, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all processes, as a host that hangs."""
        for _ in range(3):  # one may start another meanwhile
            _signal(self.pids(), signal.SIGSTOP)

    def thaw(self) -> None:
        _signal(self.pids(), signal.SIGCONT)

    def cut(self, address: str) -> None:
        """Let nothing that the host sends to *address* arrive, without a word."""
        self._ip("neigh", "replace", address, "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")

    def mend(self, address: str) -> None:
        """Undo `cut`."""
        self._ip("neigh", "del", address, "dev", "eth0")

    def __enter__(self) -> Self:
        for directory in (self._disk / "tmp", *self._others):
            directory.mkdir(parents=True, exist_ok=True)
        with suppress(subprocess.CalledProcessError):  # of a process that was killed
            _run("ip", "netns", "del", self._space)
        _run("ip", "netns", "add", self._space)
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _run("ip", "link", "set", self._link, "master", _BRIDGE, "up")
        self._ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self._ip("link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        _run("ip", "netns", "del", self._space)

    def _ip(self, *arguments: str) -> None:
        _run("ip", "-n", self._space, *arguments)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
