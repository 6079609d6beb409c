"""CloudEvents in Kafka: the headers of its protocol binding, and names that no other header may have beside them."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core import EVENT_TYPE, Attributes, CloudEvents, each_event

Header = tuple[str, bytes | None]
_PREFIX = "ce_"
_CONTENT_TYPE = "content-type"


def constant_headers(events: CloudEvents | None) -> list[Header]:
    """Return the headers that every event has: in mode "structured" its content type."""
    return [] if events is None or events.binary else [(_CONTENT_TYPE, EVENT_TYPE.encode())]


def event_headers(attributes: Attributes, count: int) -> list[list[Header]]:
    """Return the headers of *count* events in mode "binary"."""
    return [_headers(event) for event in each_event(attributes, count)]


def resolved_headers(attributes: Mapping[str, str]) -> list[Header]:
    """Return the headers of one event in mode "binary"."""
    return _headers(attributes)


def is_of_event(name: str) -> bool:
    """Return whether *name* is a header that makes a message an event."""
    return name.lower() == _CONTENT_TYPE or name.lower().startswith(_PREFIX)


def _headers(attributes: Mapping[str, str]) -> list[Header]:
    return [
        (_CONTENT_TYPE if name == "datacontenttype" else f"{_PREFIX}{name}", value.encode())
        for name, value in attributes.items()
    ]
