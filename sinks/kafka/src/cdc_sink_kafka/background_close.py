"""Closing clients without waiting for them."""

from __future__ import annotations

import threading
from typing import Any


def close_in_background(clients: list[Any]) -> None:
    """Empty *clients* in a background thread, which destroys them. The list must hold the only references.

    Destroying a client waits for its threads. These may be busy with a host name or a broker for a long time, and
    after a fatal error they may never end. So no traceback may keep a reference to a client either: the garbage
    collector would then do the waiting.
    """
    threading.Thread(target=clients.clear, name="kafka-release", daemon=True).start()
