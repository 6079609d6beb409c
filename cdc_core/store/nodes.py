"""The sessions of nodes: who is alive, as the database's clock says."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.job_tables import CLUSTER, NODES, DatabaseNow
from cdc_core.store.job_values import JobState, NodeRecord, node_record
from cdc_core.store.values import dump
from cdc_core.store.verbs import RefusedError

_DEAD_FOR_S = 86_400.0
"""How long a session is listed after it has expired."""
_LEADS = sa.and_(NODES.c.expires > DatabaseNow(), NODES.c.node_id.in_(sa.select(CLUSTER.c.node_id))).label("leads")


class Nodes(Aggregate):
    """Every node that has joined, until it has left or been dead for a day."""

    def join(self, node: NodeRecord, *, lease_s: float, former: str | None = None) -> NodeRecord:
        """Return *node* with a session of its own, which expires in *lease_s* unless it is renewed.

        *former* is the session of a process that has certainly ended: it ends now. Raises: ConfigError when another
        node of this name is alive, or the store is neither PostgreSQL nor SQLite.
        """
        now = DatabaseNow()
        node_id = secrets.token_hex(8)
        with self._database.transaction() as connection:
            over = (NODES.c.expires <= now) | (NODES.c.node_id == former)
            old = sa.and_(NODES.c.name == node.name, over) | (NODES.c.expires < now - _DEAD_FOR_S)
            connection.execute(sa.delete(NODES).where(old))
            other = sa.select(NODES.c.host, NODES.c.pid).where(NODES.c.name == node.name)
            found = connection.execute(other).first()
            if found is not None:
                raise ConfigError(
                    f"a node '{node.name}' is alive on {found.host} (process {found.pid}); give this node another"
                    " --name"
                )
            row = connection.execute(
                sa.insert(NODES)
                .values(
                    node_id=node_id,
                    name=node.name,
                    locality=str(node.locality),
                    host=node.host,
                    pid=node.pid,
                    directory=node.directory,
                    version=node.version,
                    max_jobs=node.max_jobs,
                    started=now,
                    expires=now + lease_s,
                    is_draining=False,
                    problems="{}",
                    owners=dump(list(node.owners)),
                    cores=node.cores,
                    master=node.master,
                )
                .returning(*NODES.c)
            ).one()
            details: dict[str, Any] = {"host": node.host, "pid": node.pid, "locality": str(node.locality) or None}
            add_event(connection, "node_joined", node=node.name, version=node.version, **details)
        return node_record(row)

    def renew(
        self, node_id: str, *, lease_s: float, problems: Mapping[str, str], cores_used: int = 0
    ) -> NodeRecord | None:
        """Extend the session and return it; None when it has expired, for good, or is gone."""
        with self._database.transaction() as connection:
            # First the lock, then the look at the clock: a wait for the one must not make the other's answer old.
            connection.execute(sa.select(NODES.c.node_id).where(NODES.c.node_id == node_id).with_for_update())
            row = connection.execute(
                sa.update(NODES)
                .where(NODES.c.node_id == node_id, NODES.c.expires > DatabaseNow())
                .values(expires=DatabaseNow() + lease_s, problems=dump(dict(problems)), cores_used=cores_used)
                .returning(*NODES.c)
            ).one_or_none()
        return None if row is None else node_record(row)

    def drain(self, node_id: str) -> None:
        """Have no node give the session anything more; do nothing when that is so already."""
        mine = sa.update(NODES).where(NODES.c.node_id == node_id, NODES.c.is_draining.is_(False))
        with self._database.transaction() as connection:
            for name in connection.execute(mine.values(is_draining=True).returning(NODES.c.name)).scalars():
                add_event(connection, "node_draining", node=name)

    def leave(self, node_id: str) -> None:
        """End the session; do nothing when it has ended."""
        with self._database.transaction() as connection:
            left = sa.delete(NODES).where(NODES.c.node_id == node_id).returning(NODES.c.name)
            for name in connection.execute(left).scalars():
                add_event(connection, "node_left", node=name)

    def all(self) -> tuple[float, list[NodeRecord]]:
        """Return the database's clock and every session by name, expired ones too."""
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(sa.select(NODES, _LEADS).order_by(NODES.c.name, NODES.c.started)).all()
            now = connection.execute(sa.select(DatabaseNow())).scalar_one()
        return now, [node_record(row) for row in rows]

    def living(self) -> list[NodeRecord]:
        """Return the sessions that have not expired, by name."""
        with self._database.transaction(reading=True) as connection:
            return alive_sessions(connection)


def alive_sessions(connection: sa.Connection) -> list[NodeRecord]:
    """Return the sessions that have not expired."""
    alive = sa.select(NODES, _LEADS).where(NODES.c.expires > DatabaseNow())
    return [node_record(row) for row in connection.execute(alive.order_by(NODES.c.name)).all()]


def require_match(name: str, wanted: Locality, nodes: list[NodeRecord], *, state: JobState | None = None) -> None:
    """Return if one of the live *nodes* matches job *name*, or any node would. Raises: RefusedError.

    *state* is that of the job, None for one that is not there yet.
    """
    if not wanted.tiers or any(node.locality.matches(wanted) and not node.draining for node in nodes):
        return
    there = "; ".join(sorted({str(node.locality) or "none" for node in nodes if not node.draining}))
    exist, remedy = f"the live nodes have the localities {there}", ""
    if not there:
        exist, remedy = "no node is alive", f"start one with `cdc node --locality {wanted}`"
    what = f"changefeed '{name}': no node matches execution_locality '{wanted}': {exist}"
    raise RefusedError(what, state=state, remedy=remedy)
