"""What a changefeed is remembered by (`ResolvedChangefeed.definition`), compared with what it is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.timestamp import Timestamp
from cdc_core.uris import place_of, same_server

__all__ = ["require_same_range", "require_same_source", "same_destination"]

_REMEDY = "give the new changefeed another name, and remove the old one with `cdc drop FILE NAME` unless you need it"


def require_same_source(
    name: str, known: Mapping[str, Any], wanted: Mapping[str, Any], *, changes_tables: bool
) -> None:
    """Return when *wanted* may continue where *known* stopped. Raises: ConfigError, which names the difference."""
    if not same_server(known["source"], wanted["source"]):
        raise ConfigError(
            f"changefeed '{name}' was started on the source {known['source']}, not {wanted['source']}; {_REMEDY}"
        )
    if not changes_tables and set(known["tables"]) != set(wanted["tables"]):
        raise ConfigError(
            f"changefeed '{name}' was started on the tables {', '.join(sorted(known['tables']))}, "
            f"not {', '.join(sorted(wanted['tables']))}, and its source cannot change them; {_REMEDY}"
        )


def require_same_range(name: str, known: Mapping[str, Any], wanted: Mapping[str, Any], *, latest: Timestamp) -> None:
    """Return when *wanted* may continue where *known* stopped, after steps that ended at *latest* or before.

    Steps have left out what comes before the cursor and after end_time. Raises: ConfigError.
    """
    for option in ("cursor", "end_time"):
        before, now = known.get(option), wanted.get(option)
        if now != before and (before is not None or option == "cursor"):
            was = f"without {option}" if before is None else f'with {option} = "{before}"'
            raise ConfigError(
                f"changefeed '{name}' was started {was}, which cannot be changed; restore that, or {_REMEDY}"
            )
    if before is None and now is not None and Timestamp.parse(now) < latest:
        raise ConfigError(
            f"changefeed '{name}' has delivered rows up to {latest}, which is later than end_time, {now}; set a later"
            " end_time"
        )


def same_destination(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether both deliver to one place, where readers of one find what the other recorded.

    Definitions that older versions stored have no `place`: then only the sink's URI is compared.
    """
    places = [definition["place"] for definition in (known, wanted) if "place" in definition]
    return place_of(known["sink"]) == place_of(wanted["sink"]) and places[:1] == places[-1:]
