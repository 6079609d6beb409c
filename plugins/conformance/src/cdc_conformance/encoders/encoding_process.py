"""Encodes in another process, as on a worker, with another hash seed, date, time zone and locale."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from cdc_conformance.encoders.changefeeds import open_encoder
from cdc_conformance.encoders.rig import pairs_of
from cdc_conformance.processes import Peer
from cdc_core import RowBatch
from cdc_core.config.resolved import ResolvedChangefeed

__all__ = ["PEER", "pairs_of_other_process", "set_clock_ahead"]

PEER = Peer(
    f"import {__name__} as here; here.set_clock_ahead()",
    PYTHONHASHSEED="4711",
    TZ="Pacific/Chatham",
    LC_ALL="C",
    PYTHONUTF8="0",
)


def pairs_of_other_process(feed: ResolvedChangefeed, rows: RowBatch, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of *rows* that the encoder of *feed* writes in another process."""
    return PEER.call(_pairs, feed, bytes(rows.to_ipc()), topic)


def _pairs(feed: ResolvedChangefeed, rows: bytes, topic: str) -> list[tuple[bytes, bytes | None]]:
    return pairs_of(open_encoder(feed).encode(RowBatch.from_ipc(rows), topic=topic))


def set_clock_ahead() -> None:
    """Make it the next day in this process, before plugins are imported."""
    time.time = partial(_later, time.time)


def _later(now: Callable[[], float]) -> float:
    return now() + 86_400
