"""Where a server listens, and which names it answers to."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Self

from cdc_core.errors import ConfigError

_EVERYWHERE = ("0.0.0.0", "::")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a port; 0 stands for any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, option: str) -> Self:
        """Return the address that was written as HOST:PORT, with an IPv6 number in brackets. Raises: ConfigError."""
        host, colon, port = text.rpartition(":")
        number = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not number or (":" in host and number == host) or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(
                f"{option} {text}: this is not HOST:PORT, such as 127.0.0.1:9464; write {option}=HOST:PORT, or"
                f" {option} after all other words"
            )
        return cls(number, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this host can connect. A name other than `localhost` may mean any address."""
        return _is_loopback(self.host.lower())

    def answers_to(self, host_header: str) -> bool:
        """Return whether a request with this header may be served.

        A page of another site can have its name resolve to this host, and a browser would then let it read the answer.
        Its name gives it away. Only a server that was told to listen everywhere cannot know its names.
        """
        if self.is_everywhere:
            return True
        host = host_header.strip().lower()
        bare, _, port = host.rpartition(":")
        name = bare if port.isdecimal() and (not bare or bare.endswith("]") or ":" not in bare) else host
        return name.strip("[]") in self._names

    @property
    def _names(self) -> tuple[str, ...]:
        host = self.host.lower()
        return (host, *_LOOPBACK) if _is_loopback(host) else (host,)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
