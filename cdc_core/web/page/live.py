"""Pages that stay up to date: a stream of server-sent events with the parts of a page that have changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from cdc_core.errors import CdcError
from cdc_core.web.endpoint import Refusal
from cdc_core.web.page.history import INTERVAL_S
from cdc_core.web.page.rendering import part

_MAX_S = 240.0
"""The browser connects again after that, so that one that may not look any more is turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A page at one moment: its parts as HTML by their ids, and a point of the charts.

    `group` is the part that holds `members`: it is sent whole when other members come or go.
    """

    parts: Mapping[str, str]
    group: Callable[[], str] | None = None
    members: Sequence[str] = ()
    point: Sequence[float | None] | None = None


class _Stream:
    """What one browser has been sent."""

    def __init__(self, read: Callable[[], Frame]) -> None:
        self._read = read
        self._parts: dict[str, str] = {}
        self._members: Sequence[str] | None = None

    def events(self) -> list[str]:
        """Return what the browser lacks, as events."""
        try:
            frame = self._read()
        except (CdcError, Refusal) as error:
            return self._changed({"connection": part("connection.html", problem=str(error))})
        events, changed = [], {**frame.parts, "connection": part("connection.html", problem="")}
        if frame.group is not None and frame.members != self._members:
            for member in frame.members:
                self._parts[member] = changed.pop(member)
            events.append(_event("parts", frame.group()))
            self._members = frame.members
        events += self._changed(changed)
        if frame.point is not None:
            events.append(_event("point", json.dumps(frame.point)))
        return events

    def _changed(self, parts: Mapping[str, str]) -> list[str]:
        new = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        self._parts.update(new)
        return [_event("parts", "\n".join(new.values()))] if new else []


def frames_answer(read: Callable[[], Frame]) -> Response:
    """Return a stream that calls *read*, in a thread, once a second while the browser is connected."""
    answer = StreamingResponse(_stream(read), media_type="text/event-stream")
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


async def _stream(read: Callable[[], Frame]) -> AsyncIterator[str]:
    stream, end = _Stream(read), time.monotonic() + _MAX_S
    yield "retry: 2000\n\n"
    while time.monotonic() < end:
        for event in await run_in_threadpool(stream.events):
            yield event
        await asyncio.sleep(INTERVAL_S)
    yield _event("over", "")


def _event(name: str, text: str) -> str:
    data = "\n".join(f"data: {line}" for line in text.splitlines()) or "data:"
    return f"event: {name}\n{data}\n\n"
