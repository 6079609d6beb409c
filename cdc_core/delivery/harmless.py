"""What may fail without harm to the changefeed: whatever only a trace needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from cdc_core.errors import FencedError

__all__ = ["harmless"]

log = logging.getLogger(__name__)


@contextmanager
def harmless(drop: Callable[[], object] = lambda: None) -> Iterator[None]:
    """End the block at an error, log it, once in this process, and *drop* what is traced. A FencedError passes."""
    try:
        yield
    except FencedError:
        raise
    except Exception as error:
        drop()
        _log_once(f"{type(error).__name__}: {error}")


@lru_cache(maxsize=100)
def _log_once(text: str) -> None:
    log.warning("a trace failed, and the changefeed continues without it: %s", text)
