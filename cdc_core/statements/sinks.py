"""URIs of sinks as CockroachDB writes them."""

from __future__ import annotations

__all__ = ["translated_sink"]

_FILES = "files are not sent over HTTP; for requests to an endpoint write webhook-https://"
_REFUSED = {
    "experimental-sql": "rows are not written to a table of a database",
    "external": "there are no external connections; write the URI itself, with ${VARIABLE} in place of its secrets",
    "file-http": _FILES,
    "file-https": _FILES,
    "http": _FILES,
    "https": _FILES,
    "nodelocal": "nodes have no directory of their own; write file:///PATH with a directory that all nodes share",
}


def translated_sink(uri: str) -> str:
    """Return the URI of ours that CockroachDB's means: the same one, as parameters have the same names.

    Whether a sink for it is installed is found out later. Raises: ValueError with what to write instead.
    """
    scheme = uri.partition("://")[0].lower()
    reason = _REFUSED.get(scheme) if "://" in uri else None
    if reason is not None:
        raise ValueError(f"a URI with the scheme '{scheme}' cannot be a sink: {reason}")
    return uri
