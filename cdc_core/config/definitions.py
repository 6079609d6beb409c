"""What a changefeed is remembered by, `Job.definition`, against what it is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_core.errors import ConfigError

__all__ = ["place_of", "require_same_source", "same_destination"]


def require_same_source(name: str, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Return when *wanted* may go on from where *known* has come. Raises: ConfigError, naming what is another."""
    if _without_scheme(known["source"]) != _without_scheme(wanted["source"]):
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
    """Return whether both deliver to one place, where what the one recorded is there for readers of the other.

    Of a definition without `place`, which older versions stored, nothing but the sink's URI is compared.
    """
    places = [definition["place"] for definition in (known, wanted) if "place" in definition]
    return place_of(known["sink"]) == place_of(wanted["sink"]) and places[:1] == places[-1:]


def place_of(uri: str) -> str:
    """Return *uri* without user, parameters and final slash, the same for a list of hosts in any order.

    The scheme is in lower case.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, rest = "", uri
    hosts, slash, path = rest.partition("?")[0].rstrip("/").partition("/")
    return f"{scheme.lower()}{separator}{','.join(sorted(hosts.rpartition('@')[2].split(',')))}{slash}{path}"


def _without_scheme(uri: str) -> str:
    """Return host, port and database of a source: what makes it another one."""
    return place_of(uri).partition("://")[2]
