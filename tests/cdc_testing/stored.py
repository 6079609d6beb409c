"""What tests of the progress store save in it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from cdc_core import Frontier, Span, Timestamp
from cdc_core.locality import Locality
from cdc_core.store import rescans
from cdc_core.store.deletion import drop
from cdc_core.store.job_tables import NODES, DatabaseNow
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import Progress, ProgressStore

DEFINITION: dict[str, Any] = {
    "source": "postgresql://user:***@host:5432/shop",
    "tables": ["public.orders", "public.users"],
    "sink": "file:///data/out",
    "format": "json",
}


def progress(n: int = 1) -> Progress:
    frontier = Frontier([Span("shop.public.orders"), Span("shop.public.users")])
    frontier.forward(Span("shop.public.orders"), Timestamp(n + 5))
    frontier.forward(Span("shop.public.users"), Timestamp(n, 3))
    return Progress(
        token={"lsn": n}, frontier=frontier, latest=Timestamp(n + 5), counters={"rows": 10.0 * n, "steps": n}
    )


def paused(store: ProgressStore) -> str | None:
    found = store.changefeeds.find("orders")
    assert found is not None
    return None if found.paused is None else found.paused.reason


def node(name: str, locality: str = "") -> NodeRecord:
    """Return a node as it joins the store."""
    return NodeRecord(
        node_id="",
        name=name,
        locality=Locality.parse(locality),
        host="here",
        pid=1,
        directory=f"/{name}",
        version="1",
        max_jobs=9,
    )


def die(store: ProgressStore, session: NodeRecord) -> None:
    """Have the session of a node expire."""
    with store._database.transaction() as connection:
        connection.execute(
            sa.update(NODES).where(NODES.c.node_id == session.node_id).values(expires=DatabaseNow() - 0.001)
        )


def ask_rescan(
    store: ProgressStore, name: str, *, table: str | None, where: str | None = None, new_slot: bool = False
) -> None:
    with store.transaction() as connection:
        rescans.ask_rescan(connection, name, table=table, where=where, new_slot=new_slot)


def dropped(store: ProgressStore, name: str = "orders") -> None:
    """Have the store forget a changefeed."""
    with store.transaction() as connection:
        drop(connection, name)
