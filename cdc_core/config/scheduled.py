"""A changefeed as a schedule runs it: each run scans the tables, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.resolve import canonical_names
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError, OptionError
from cdc_core.options import option_names, parse_options

_REFUSED = ("cursor", "diff", "end_time", "mvcc_timestamp", "resolved", "updated")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,25}")


def require_schedule_name(name: str) -> None:
    """Return if *name* can be the name of a schedule. Raises: ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' is not a valid name of a schedule; use 1 to 25 of the characters A-Z a-z 0-9 _ -, as the time of"
            " each run is added to it"
        )


def scheduled(changefeed: Changefeed) -> Changefeed:
    """Return *changefeed* with initial_scan = 'only'. Raises: OptionError for options that such a run cannot have."""
    owner = f"changefeed '{changefeed.name}'"
    given = canonical_names(changefeed.options, option_names(ChangefeedOptions), owner=owner)
    mine = {name: given[name] for name in _REFUSED if name in given}
    parsed = parse_options(ChangefeedOptions, mine, owner=owner)
    for name in mine:
        value = getattr(parsed, name)
        if value is not None and value is not False:
            raise OptionError(
                f"{owner} cannot be scheduled with option '{name}': each run is a scan, which has only one timestamp;"
                " remove the option"
            )
    if given.get("initial_scan", "only") != "only":
        raise OptionError(
            f"{owner} cannot be scheduled with initial_scan = '{given['initial_scan']}': each run is a scan only;"
            " remove the option"
        )
    written = changefeed.written
    return replace(
        changefeed,
        options=_scan_only(changefeed.options),
        written=written and {**written, "options": _scan_only(written.get("options", {}))},
    )


def scheduled_definition(feed: ResolvedChangefeed) -> dict[str, Any]:
    """Return what the store keeps of *feed*. Raises: ConfigError when it holds a secret that is not a reference."""
    definition = feed.definition()
    if definition["literal_secrets"]:
        raise ConfigError(
            f"changefeed '{feed.name}' has a secret in plain text in {', '.join(definition['literal_secrets'])}, which"
            " the store does not keep; write it as ${VARIABLE} or ${file:PATH}"
        )
    return definition


def _scan_only(options: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name.lower() != "initial_scan"}
    return {**kept, "initial_scan": "only"}
