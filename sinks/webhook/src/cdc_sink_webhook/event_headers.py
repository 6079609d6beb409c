"""CloudEvents over HTTP: the headers of its protocol binding, and how much of them an endpoint can be given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from cdc_core import ConfigError

RequestHeaders = tuple[tuple[bytes, bytes], ...]
MAX_HEADERS = 4096
"""Bytes of the attributes of an event beyond which its row is refused. Servers take about 8 KB of headers, and what
they do with more differs: some answer 431, others break the connection, and no repetition would help."""
LARGE_HEADERS = 1024
"""Bytes of attributes from which the answer 431 is about the row, and not about headers of every request."""
_PREFIX = "ce-"
_AS_THEY_ARE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")


def event_headers(attributes: Mapping[str, str]) -> RequestHeaders:
    """Return the headers of an event in mode "binary", percent-encoded. `datacontenttype` is the body's type anyway."""
    return tuple(
        (f"{_PREFIX}{name}".encode(), quote(value, safe=_AS_THEY_ARE).encode())
        for name, value in attributes.items()
        if name != "datacontenttype"
    )


def refuse_names_of_events(names: Iterable[str]) -> None:
    """Raise a ConfigError when a header in *names* is one that events have."""
    taken = next((name for name in names if name.lower().startswith(_PREFIX)), None)
    if taken is not None:
        raise ConfigError(
            f"sink 'webhook': extra_headers contains '{taken}', which envelope 'cloudevents' sets itself; choose"
            " another name"
        )
