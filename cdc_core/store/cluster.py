"""Which node leads the cluster that the nodes form, and what the master of Spark there has written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cdc_core.locality import Locality
from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.job_tables import CLUSTER, JOBS
from cdc_core.store.job_values import RUNNABLE, NodeRecord
from cdc_core.store.nodes import alive_sessions
from cdc_core.store.tables import CHANGEFEEDS
from cdc_core.store.values import dump


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """The cluster as of a poll. `members` are the live nodes that offer cores, the one that leads first.

    `epoch` counts the changes of who leads. `salt` is random, and stays the same.
    """

    leader: NodeRecord | None
    epoch: int
    salt: str
    members: Sequence[NodeRecord]

    @property
    def url(self) -> str:
        """Where workers and drivers look for the master: at all nodes that may lead."""
        return "spark://" + ",".join(dict.fromkeys(node.master for node in self.members))

    @property
    def is_leader_leaving(self) -> bool:
        """Whether the node that leads drains, and another one does not."""
        return self.leader is not None and self.leader.draining and not all(node.draining for node in self.members)

    def within(self, locality: str | None) -> list[NodeRecord]:
        """Return the members on which a job with this execution_locality begins: they match it, and do not drain."""
        wanted = Locality.parse(locality or "")
        return [node for node in self.members if node.locality.matches(wanted) and not node.draining]

    def cores(self, locality: str | None) -> int:
        """Return how many a job gets on each member within *locality*: as many as the smallest offers.

        If there is none, it may join later: the smallest of all members counts, of which there must be one.
        """
        return min(node.cores for node in self.within(locality) or self.members)


class ClusterRecords(Aggregate):
    """The cluster of a store. All of its members lead it in turn: the next one when the session of one is over."""

    def poll(self, me: NodeRecord | None = None) -> ClusterRecord:
        """Return the cluster. If no node leads it, *me* takes the lead, unless *me* is None or is draining."""
        with self._database.transaction(reading=True) as connection:
            found = _record(connection)
        may_lead = me is not None and any(node.node_id == me.node_id and not node.draining for node in found.members)
        if found.leader is not None or not may_lead:
            return found
        assert me is not None
        return self._database.once_more(lambda connection: _lead(connection, me))

    def knows(self, application: str, *, epoch: int) -> bool:
        """Return whether the master of *epoch* still leads, or the next one knows *application*, by Spark's id.

        Cheap as long as it leads.
        """
        written = CLUSTER.c.files.contains(f'"app_{application}"', autoescape=True)
        known = sa.case((CLUSTER.c.epoch == epoch, sa.true()), else_=written)
        with self._database.transaction(reading=True) as connection:
            return bool(connection.execute(sa.select(known)).scalar_one())

    def files(self) -> dict[str, str]:
        """Return what the last master has written, by name in base64. May be large: ask once a master."""
        with self._database.transaction(reading=True) as connection:
            return dict(json.loads(connection.execute(sa.select(CLUSTER.c.files)).scalar_one()))

    def save(self, files: Mapping[str, str], *, epoch: int) -> bool:
        """Keep what the master of *epoch* has written; False, and nothing is kept, when another one leads since."""
        mine = sa.update(CLUSTER).where(CLUSTER.c.epoch == epoch)
        with self._database.transaction() as connection:
            return connection.execute(mine.values(files=dump(dict(files)))).rowcount == 1

    def resign(self, epoch: int) -> None:
        """Let another node lead, if the one of *epoch* still does."""
        mine = sa.update(CLUSTER).where(CLUSTER.c.epoch == epoch)
        with self._database.transaction() as connection:
            connection.execute(mine.values(node_id=""))

    def take_slot(self, name: str, *, count: int) -> int | None:
        """Return a number below *count* that no other job has that is running on a live node; None if none is left.

        It is another one at each run, as executors of earlier ones may not have ended yet.
        """
        with self._database.transaction() as connection:
            connection.execute(sa.select(CLUSTER.c.id).with_for_update())  # one job at a time
            alive = [node.node_id for node in alive_sessions(connection)]
            others = (JOBS.c.state.in_(RUNNABLE), JOBS.c.node_id.in_(alive), JOBS.c.slot.is_not(None))
            taken = set(connection.execute(sa.select(JOBS.c.slot).where(JOBS.c.name != name, *others)).scalars())
            runs = connection.execute(sa.select(sa.func.sum(CHANGEFEEDS.c.epoch))).scalar_one()
            slots = ((int(runs) + number) % count for number in range(count))
            slot = next((number for number in slots if number not in taken), None)
            if slot is None:
                return None
            connection.execute(sa.update(JOBS).where(JOBS.c.name == name).values(slot=slot))
            return slot


def _record(connection: sa.Connection, *, locked: bool = False) -> ClusterRecord:
    selected = sa.select(CLUSTER.c.node_id, CLUSTER.c.epoch, CLUSTER.c.salt)
    row = connection.execute(selected.with_for_update() if locked else selected).one()
    members = [node for node in alive_sessions(connection) if node.cores]
    leader = next((node for node in members if node.node_id == row.node_id), None)
    return ClusterRecord(
        leader=leader,
        epoch=row.epoch,
        salt=row.salt,
        members=sorted(members, key=lambda node: node is not leader),
    )


def _lead(connection: sa.Connection, me: NodeRecord) -> ClusterRecord:
    found = _record(connection, locked=True)
    if found.leader is not None:
        return found
    connection.execute(sa.update(CLUSTER).values(node_id=me.node_id, epoch=found.epoch + 1))
    add_event(connection, "cluster_led", node=me.name)
    return _record(connection)
