"""The option `endpoints`: further servers with the same database, and which of them are close."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core import Locality

_SCHEMES = ("postgresql://", "postgres://")
_EXAMPLE = '{uri = "postgresql://…", locality = "region=eu-west-1"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server with the database of the source: the primary, or a standby."""

    uri: str = field(repr=False)
    locality: Locality


def parse_endpoints(values: Iterable[Mapping[str, Any]]) -> list[Endpoint]:
    """Return the endpoints that the option lists. Raises: ValueError, which shows no URI."""
    found = []
    for number, value in enumerate(values, start=1):
        uri, locality = value.get("uri"), value.get("locality")
        if value.keys() != {"uri", "locality"} or not isinstance(uri, str) or not isinstance(locality, str):
            raise ValueError(f"endpoint {number} must have a uri and a locality, as in {_EXAMPLE}")
        if not uri.startswith(_SCHEMES):
            raise ValueError(f"the uri of endpoint {number} must begin with postgresql://")
        try:
            tiers = Locality.parse(locality)
        except ValueError as error:
            raise ValueError(f"endpoint {number}: {error}") from None
        if not tiers.tiers:
            raise ValueError(f"the locality of endpoint {number} is empty. Write it as in {_EXAMPLE}")
        found.append(Endpoint(uri=uri, locality=tiers))
    return found


def closer_first(endpoints: Mapping[str, Endpoint], here: Locality) -> Sequence[str]:
    """Return the names of *endpoints*, those first that have most leading tiers in common with *here*.

    The order of endpoints that are equally close stays.
    """
    return sorted(endpoints, key=lambda name: -endpoints[name].locality.common(here))
