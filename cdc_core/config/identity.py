"""What a changefeed is remembered by (`ResolvedChangefeed.definition`), compared with what it is now.

Where it reads and writes is kept by references, and comparable all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core.config.interpolation import cut_references, fill_references, has_references
from cdc_core.config.listed_tables import namesakes, watches
from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri
from cdc_core.queries.selection import Selection
from cdc_core.timestamp import Timestamp
from cdc_core.uris import place_of, same_server

_REMEDY = "give the new changefeed another name, and remove the old one with `cdc drop FILE NAME` unless you need it"


def require_same_source(
    name: str, known: Mapping[str, Any], wanted: Mapping[str, Any], *, changes_tables: bool
) -> None:
    """Return when *wanted* may continue where *known* stopped. Raises: ConfigError, which names the difference."""
    if not same_sources(known, wanted):
        before, now = _listed(known["source"]), _listed(wanted["source"])
        places, others = _places(known, "source"), _places(wanted, "source")
        if len(before) == len(now) > 1 and all(any(same_server(uri, other) for other in others) for uri in places):
            raise ConfigError(
                f"changefeed '{name}' lists its sources in a different order than before, and its progress depends on"
                f" this order; restore the order: {', '.join(before)}"
            )
        raise ConfigError(f"changefeed '{name}' was started on the {_sources(before)}, not {', '.join(now)}; {_REMEDY}")
    if known.get("query") != wanted.get("query"):
        raise ConfigError(
            f"changefeed '{name}' was started with {_query(known)}, which cannot be changed: new rows would not"
            f" have the same shape as those already delivered; restore the query, or {_REMEDY}"
        )
    functions, now_functions = known.get("functions", {}), wanted.get("functions", {})
    for function in sorted({*functions, *now_functions}):
        if functions.get(function) != now_functions.get(function):
            was = "was started without" if function not in functions else "was started with a different"
            raise ConfigError(
                f"changefeed '{name}' {was} function {function}, which cannot be changed: new rows would"
                f" not have the same shape as those already delivered; restore the function, or {_REMEDY}"
            )
    _require_same_sections(name, known, wanted)
    if not changes_tables and set(known["tables"]) != set(wanted["tables"]):
        raise ConfigError(
            f"changefeed '{name}' was started on the tables {', '.join(sorted(known['tables']))}, "
            f"not {', '.join(sorted(wanted['tables']))}, and its source cannot change them; {_REMEDY}"
        )


def _query(definition: Mapping[str, Any]) -> str:
    query = definition.get("query")
    return "no query" if query is None else f"the query {' '.join(query.split())}"


def _require_same_sections(name: str, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Return when the sections of all tables that both definitions watch are the same. Raises: ConfigError."""
    for table in changed_sections(known, wanted):
        raise ConfigError(
            f"changefeed '{name}' was started with {_section(table, known.get('selections', {}))}, which cannot be"
            " changed: new rows would not have the same shape as those already delivered; restore the section,"
            f" or {_REMEDY}"
        )


def changed_sections(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the tables that both definitions watch, and that have other sections in *wanted*."""
    before, now = known.get("selections", {}), wanted.get("selections", {})
    return [
        table
        for table in sorted({*before, *now})
        if before.get(table) != now.get(table)
        and all(watches(each["tables"], table, but=namesakes(known["tables"], table)) for each in (known, wanted))
    ]


def _section(table: str, sections: Mapping[str, Any]) -> str:
    section = sections.get(table)
    if section is None:
        return f"no section of table {table}"
    return f"the section of table {table} ({Selection.parse(table, section).shown})"


def same_sources(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether two definitions have the same sources in the same order."""
    before, now = _places(known, "source"), _places(wanted, "source")
    return len(before) == len(now) and all(map(same_server, before, now))


def _listed(source: str | Sequence[str]) -> Sequence[str]:
    return [source] if isinstance(source, str) else source


def _places(definition: Mapping[str, Any], part: str) -> Sequence[str]:
    """Return the places of the sources or of the sink, hidden: definitions with references tell no others."""
    found: Sequence[str] | None = definition.get("places", {}).get(part)
    return [hidden_place(uri) for uri in _listed(definition[part])] if found is None else found


def _sources(uris: Sequence[str]) -> str:
    return f"{'source' if len(uris) == 1 else 'sources'} {', '.join(uris)}"


def require_same_range(name: str, known: Mapping[str, Any], wanted: Mapping[str, Any], *, latest: Timestamp) -> None:
    """Return when *wanted* may continue where *known* stopped, after steps that ended at *latest* or before.

    Steps have left out what comes before the cursor and after end_time. Raises: ConfigError.
    """
    for option in ("cursor", "end_time"):
        before, now = known.get(option), wanted.get(option)
        if now != before and (before is not None or option == "cursor"):
            was = f"without {option}" if before is None else f'with {option} = "{before}"'
            raise ConfigError(
                f"changefeed '{name}' was started {was}, which cannot be changed; restore the option, or {_REMEDY}"
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
    places = [
        {name: digest(value) for name, value in definition["place"].items()}
        for definition in (known, wanted)
        if "place" in definition
    ]
    return _places(known, "sink") == _places(wanted, "sink") and places[:1] == places[-1:]


_PREFIX = "sha256:"


def kept_places(written: Mapping[str, Any], sources: Sequence[str], sink: str, *, secret_path: bool) -> dict[str, Any]:
    """Return `source` and `sink` of a definition: these masked URIs, with the references that were *written* in them.

    If there are any, `places` has digests of the places that they stand for.
    """
    given = written.get("source")
    shown = [*map(_with_references, sources, [given] if given is None or isinstance(given, str) else given)]
    shown_sink = _with_references(sink, written.get("sink"), secret_path=secret_path)
    found: dict[str, Any] = {"source": shown if len(shown) > 1 else shown[0], "sink": shown_sink}
    if [*shown, shown_sink] != [*sources, sink]:
        found["places"] = {"source": [*map(hidden_place, sources)], "sink": [hidden_place(sink)]}
    return found


def kept_place(written: Mapping[str, Any], place: Mapping[str, str]) -> dict[str, str]:
    """Return the sink's options that say which *place* its URI means, as digests where references may be in them."""
    hide = has_references([written.get("sink"), written.get("options")])
    return {name: digest(value) if hide else value for name, value in place.items()}


def _with_references(uri: str, written: Any, *, secret_path: bool = False) -> str:
    """Return the masked *uri* with the references that were *written* in it, but for those under the mask.

    Its scheme stays, and so does whether it has parameters.
    """
    text, references = cut_references(written) if isinstance(written, str) else ("", [])
    scheme, separator, _ = uri.partition("://")
    rest = text.partition("://")[2] if "://" in text else text
    shown = masked_uri(f"{scheme}{separator}{rest}", secret_path=secret_path)
    if "?" not in uri:
        shown = shown.partition("?")[0]
    filled = fill_references(shown, references)
    return uri if filled == shown else filled


def hidden_place(uri: str) -> str:
    """Return `place_of` *uri* with digests in place of its hosts and its path: the same for the same places."""
    scheme, separator, rest = place_of(uri).rpartition("://")
    hosts, _, path = rest.partition("/")
    return f"{scheme}{separator}{','.join(map(digest, hosts.split(',')))}/{digest(path)}"


def digest(text: str) -> str:
    """Return a digest of *text*, which may be one already."""
    return text if text.startswith(_PREFIX) else _PREFIX + hashlib.sha256(text.encode()).hexdigest()
