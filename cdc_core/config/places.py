"""Where a changefeed reads and writes, as the store keeps it: by references, and comparable all the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core.config.interpolation import cut_references, fill_references, has_references
from cdc_core.masking import masked_uri
from cdc_core.uris import place_of

__all__ = ["digest", "hidden_place", "kept_place", "kept_places"]

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
