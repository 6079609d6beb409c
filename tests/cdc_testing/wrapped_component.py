"""A component of a changefeed with something in front of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.config.component import Component

__all__ = ["wrapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapped(Component[Any]):
    wraps: Mapping[str, Callable[[Any], Any]]

    def load(self, part: str, base: type) -> Any:
        real, wrap = Component.load(self, part, base), self.wraps.get(part, lambda opened: opened)
        return lambda context: wrap(real(context))


def wrapped(component: Component[Any], **wraps: Callable[[Any], Any]) -> Component[Any]:
    """Return *component* with what *wraps* makes of its parts, by their names, in this process."""
    return _Wrapped(registration=component.registration, values=component.values, wraps=wraps)
