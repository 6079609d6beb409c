"""What a changefeed is remembered by, `Job.definition`, against what it is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_core.errors import ConfigError

__all__ = ["require_same_source", "same_destination"]


def require_same_source(name: str, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Return when *wanted* may go on from where *known* has come. Raises: ConfigError, naming what is another."""
    if _place(known["source"]) != _place(wanted["source"]):
        raise ConfigError(
            f"changefeed '{name}' was started on the source {known['source']}, not {wanted['source']}; "
            "give the new one another name"
        )
    if set(known["tables"]) != set(wanted["tables"]):
        raise ConfigError(
            f"changefeed '{name}' was started on the tables {', '.join(sorted(known['tables']))}, "
            f"not {', '.join(sorted(wanted['tables']))}; give the new one another name"
        )


def same_destination(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether both deliver to one place, where what the one recorded is there for readers of the other."""
    return _destination(known["sink"]) == _destination(wanted["sink"])


def _place(uri: str) -> str:
    """Return host, port and database of *uri*: what makes it another source, unlike its user or its parameters."""
    return uri.partition("://")[2].partition("?")[0].rpartition("@")[2]


def _destination(uri: str) -> tuple[str, ...]:
    """Return what makes *uri* another destination: scheme, host, path, endpoint; not its user or other parameters."""
    scheme, _, rest = uri.partition("://")
    place, _, query = rest.partition("?")
    endpoints = (each for each in query.split("&") if "endpoint" in each.partition("=")[0].lower())
    return scheme, place.rpartition("@")[2].rstrip("/"), *sorted(endpoints)
