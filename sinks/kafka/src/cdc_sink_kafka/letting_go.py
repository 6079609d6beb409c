"""How clients end."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["let_go"]


def let_go(clients: list[Any]) -> None:
    """Empty *clients*, which must hold the only references to them, without waiting for their ends.

    To destroy a client means to wait for its threads, which may be long about a name or a broker, and after a fatal
    error may never end. Therefore no traceback may hold on to one, or the collector of garbage would have to wait.
    """
    threading.Thread(target=clients.clear, name="kafka-let-go", daemon=True).start()
