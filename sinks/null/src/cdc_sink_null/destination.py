"""The destination that is none."""

from __future__ import annotations

from urllib.parse import urlsplit

from cdc_core import ConfigError, Destination

__all__ = ["NullDestination"]


class NullDestination(Destination):
    """Nothing: it is always reachable and writable."""

    def check(self) -> None:
        """Return when the URI names no place, since nothing would arrive there. Raises: ConfigError."""
        parts = urlsplit(self.context.uri)
        if parts.netloc or parts.path.strip("/"):
            raise ConfigError("sink 'null' delivers nothing and has no place; write its URI as null://")

    def longest_call_s(self) -> float:
        """Return 0: no row arrives late where none arrives."""
        return 0.0
