"""The connections of a server: as many as there may be, and no more than half of them for one client."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

from cdc_core.open_files import REMEDY, open_files_limit, with_open_files_limit
from cdc_core.web.access.access import Access

log = logging.getLogger(__name__)

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` after which asyncio tries again each second."""


class Connections:
    """The open connections with their clients. Those that are being encrypted count too. Used in the event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._clients: dict[asyncio.Transport, str] = {}
        self._accepts = True
        self._most, limit = access.settings.max_connections, open_files_limit()
        if limit is not None and limit // 2 < self._most:  # the others are for what answers them
            self._most = max(1, limit // 2)
            log.warning(
                "the server accepts %d connections at a time, not %d, because this process may open %d files; %s",
                self._most,
                access.settings.max_connections,
                limit,
                REMEDY,
            )

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, transport: asyncio.Transport) -> bool:
        """Count a connection; return False for one too many."""
        self._accepts = True
        client = self._access.client_of(transport.get_extra_info("peername"))
        of_client = sum(each == client for each in self._clients.values())
        if len(self._clients) >= self._most or of_client >= max(1, self._most // 2):
            return False
        self._clients[transport] = client
        return True

    def remove(self, transport: asyncio.Transport) -> None:
        """Count a connection no more; do nothing if it was not counted."""
        self._clients.pop(transport, None)

    def abort(self) -> None:
        """End all connections at once, and with them what still waits for answers, such as streams."""
        for transport in list(self._clients):
            transport.abort()

    def log_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop; one line while there is no file or memory for a connection."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif self._accepts:
            self._accepts = False
            log.warning("no connection could be accepted: %s", with_open_files_limit(str(error), error))
