"""URIs of sources and destinations: their parameters, and which place they mean."""

from __future__ import annotations

from urllib.parse import parse_qsl

from cdc_core.errors import OptionError

_PLACE = ("host", "hostaddr", "port", "dbname", "service")
"""Parameters of a source's URI that say where it is, as those of libpq."""


def split_parameters(uri: str, *, owner: str) -> tuple[str, dict[str, str]]:
    """Return a sink's URI without its parameters, its scheme in lower case, and the parameters by name.

    Raises: OptionError, which begins with *owner*, for a parameter that is there twice.
    """
    destination, _, query = uri.partition("?")
    scheme, separator, place = destination.partition("://")
    destination = f"{scheme.lower()}{separator}{place}"
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in parameters:
            raise OptionError(f"{owner} sets the parameter '{key}' of the sink's URI twice; keep one of them")
        parameters[key] = value
    return destination, parameters


def place_of(uri: str) -> str:
    """Return *uri* without user, parameters and final slash: the same for a list of hosts in any order.

    The scheme is in lower case.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, rest = "", uri
    hosts, slash, path = rest.partition("?")[0].rstrip("/").partition("/")
    return f"{scheme.lower()}{separator}{','.join(sorted(hosts.rpartition('@')[2].split(',')))}{slash}{path}"


def same_server(uri: str, other: str) -> bool:
    """Return whether two sources are the same database: one host in common is enough, such as after a failover."""
    (hosts, path), (others, its_path) = (_hosts_and_path(each) for each in (uri, other))
    return path == its_path and not hosts.isdisjoint(others)


def same_database(uri: str, other: str) -> bool:
    """Return whether two sources of one changefeed are the same: parameters can name the server too."""
    mine, theirs = (
        {name: value for name, value in parse_qsl(each.partition("?")[2]) if name in _PLACE} for each in (uri, other)
    )
    return same_server(uri, other) and mine == theirs


def _hosts_and_path(uri: str) -> tuple[set[str], str]:
    hosts, _, path = place_of(uri).rpartition("://")[2].partition("/")
    return set(hosts.split(",")), path
