"""What consumers of CloudEvents read, with the functions of the page on them and the official SDK."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from cdc_testing.kafka_reading import Message
from cdc_testing.pages import Page

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

PAGE = Page("cloudevents.md")
_EVENT_OF, _EVENTS_OF = PAGE.function("event_of"), PAGE.function("events_of")


def of_kafka(message: Message) -> BaseCloudEvent:
    """Return the event that a message of Kafka is."""
    client = SimpleNamespace(headers=lambda: message.headers, key=lambda: message.key, value=lambda: message.value)
    event: BaseCloudEvent = _EVENT_OF(client)
    return event


def of_request(headers: dict[str, str], body: bytes) -> list[BaseCloudEvent]:
    """Return the events of a request."""
    events: list[BaseCloudEvent] = _EVENTS_OF(headers, body)
    return events
