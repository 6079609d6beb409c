"""Names of topics, as Kafka takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc_core.errors import ConfigError
from cdc_core.messages import TopicNames
from cdc_core.schema import TableName

__all__ = ["Topics", "escaped"]

_MOST_CHARACTERS = 249
_ESCAPE = re.compile(r"_(u[0-9a-fA-F]{2,8}_)")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


def escaped(name: str) -> str:
    """Return *name* with what Kafka does not allow as `_u` and four or more hex digits and `_`, as CockroachDB does.

    What looks like such an escape already gets its underscore escaped, so that different names stay different, but for
    names made to collide: `_u005f` and a letter that is escaped. `Topics.check` refuses those in one changefeed.
    """
    return _ILLEGAL.sub(lambda found: _escape(found[0]), _ESCAPE.sub(lambda found: _escape("_") + found[1], name))


def _escape(character: str) -> str:
    return f"_u{ord(character):04x}_"


class Topics:
    """Which topic the rows of a table go to."""

    def __init__(self, names: TopicNames, *, name: str | None = None) -> None:
        """Take the topics that *names* makes of tables, or the one topic *name* for all of them."""
        self._names = names
        self._name = name

    def of(self, table: TableName) -> str:
        """Return the topic of *table*."""
        return escaped(self._names.of(table) if self._name is None else self._name)

    def all(self, tables: Iterable[TableName]) -> list[str]:
        """Return the topics of *tables*, each once."""
        return sorted({self.of(table) for table in tables})

    def check(self, tables: Iterable[TableName]) -> None:
        """Return when Kafka takes the topics of *tables*. Raises: ConfigError, also when two tables would share one."""
        if self._name == "":
            raise ConfigError("sink 'kafka': option 'topic_name' is empty; name a topic or leave the option out")
        owners: dict[str, TableName] = {}
        for table in sorted(set(tables)):
            topic = self.of(table)
            if topic in (".", ".."):
                raise ConfigError(
                    f"table {table} would go to topic '{topic}', which Kafka does not allow: set topic_prefix"
                )
            if len(topic) > _MOST_CHARACTERS:
                raise ConfigError(
                    f"table {table} would go to a topic whose name has {len(topic)} characters, Kafka takes"
                    f" {_MOST_CHARACTERS}: shorten topic_prefix, do without full_table_name, or set topic_name"
                )
            if topic in owners and self._name is None:
                raise ConfigError(
                    f"tables {owners[topic]} and {table} would both go to topic '{topic}': set the option"
                    " full_table_name, put them into changefeeds of their own, or give one topic_name for all"
                )
            owners[topic] = table
