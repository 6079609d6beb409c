"""The topics that a query has given to rows: resolved marks must reach all of them, whatever crashed."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from cdc_core.errors import TerminalError
from cdc_core.store.database import Aggregate
from cdc_core.store.tables import TOPICS


class Topics(Aggregate):
    """The topics of each changefeed, in the order in which they were met."""

    def of(self, name: str) -> Sequence[str]:
        """Return all topics that rows of the changefeed may have been delivered to."""
        with self._database.transaction(reading=True) as connection:
            return topics_of(connection, name)

    def add(self, name: str, epoch: int, topic: str, *, most: int) -> Sequence[str]:
        """Return all topics after adding *topic*, if it is new. Called before its first row is delivered.

        Raises: FencedError unless *epoch* is the newest; TerminalError when there would be more than *most*.
        """
        with self._database.fenced(name, epoch) as connection:  # which also makes two tasks wait for each other
            known = topics_of(connection, name)
            if topic in known:
                return known
            if len(known) >= most:
                raise TerminalError(
                    f"changefeed '{name}': its query names a new topic '{topic}', but the changefeed already has {most}"
                    " topics, the maximum that max_topics allows; raise max_topics, or let cdc_topic have fewer values"
                )
            connection.execute(sa.insert(TOPICS).values(name=name, topic=topic))
            return [*known, topic]


def topics_of(connection: sa.Connection, name: str) -> list[str]:
    wanted = sa.select(TOPICS.c.topic).where(TOPICS.c.name == name).order_by(TOPICS.c.id)
    return list(connection.execute(wanted).scalars())
