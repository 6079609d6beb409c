"""What people confirm before something is done."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.web.page.requests import feed_path

__all__ = ["Confirmation", "confirmation_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A question, and the form that answers it. `harm`: it cannot be undone."""

    title: str
    text: str
    button: str
    target: str
    back: str
    harm: bool = False
    asks_reason: bool = False
    error: str = ""


_TEXTS = {
    "pause": (
        "Its node finishes the running step, and no node runs it until it is resumed. While it is paused, its source"
        " retains the history that was not delivered, and may run out of space."
    ),
    "resume": "It continues where it stopped. Fix the cause of an error first: otherwise it pauses again.",
    "restart": "Its node finishes the running step and hands it over; it then begins a new attempt where it stopped.",
    "cancel": (
        "It ends for good: a node drops what it created at its source, such as a slot and a publication. It cannot be"
        " resumed. What was delivered stays at the sink."
    ),
}


def confirmation_of(action: str, name: str, *, error: str = "") -> Confirmation:
    """Return the question about *action* on the changefeed *name*. *error* is why it could not be done."""
    path = feed_path(name)
    return Confirmation(
        title=f"{action.capitalize()} {name}?",
        text=_TEXTS[action],
        button=f"{action.capitalize()} {name}",
        target=f"{path}/{action}",
        back=path,
        harm=action == "cancel",
        asks_reason=action in ("pause", "cancel"),
        error=error,
    )
