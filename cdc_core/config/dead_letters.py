"""Where the dead letters of a changefeed go: a changefeed of its own, of which only encoder and sink are used."""

from __future__ import annotations

from cdc_core.config.changefeed import Changefeed
from cdc_core.schema import TableName

__all__ = ["dead_letter_changefeed", "dead_letter_table"]


def dead_letter_table(changefeed: str) -> TableName:
    """Return the table that dead letters of *changefeed* are rows of, for the sink that takes them."""
    return TableName(database="cdc", schema="dead_letters", table=f"{changefeed}_dead_letters")


def dead_letter_changefeed(changefeed: Changefeed, uri: str) -> Changefeed:
    """Return what delivers dead letters of *changefeed* to the sink at *uri*."""
    return Changefeed(name=changefeed.name, source=changefeed.source, tables=changefeed.tables, sink=uri, format="json")
