"""An admin client that does not log connection failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

_quiet = logging.getLogger(f"{__name__}.quiet")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@contextmanager
def admin_client(bootstrap_servers: str) -> Iterator[AdminClient]:
    """Yield a client of *bootstrap_servers* that does not write connection failures to standard error."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    with AdminClient(settings, logger=_quiet) as client:
        yield client
