"""Names of topics that Kafka accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc_core import ConfigError, RowBatch, TableName, TopicNames

_MAX_CHARACTERS = 249
_INTERNAL = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
_ESCAPE = re.compile(r"_(u[0-9a-fA-F]{2,8}_)")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


def escaped(name: str) -> str:
    """Return *name* with each illegal character as `_u`, four or more hex digits and `_`, as CockroachDB does.

    Text that already looks like such an escape gets its underscore escaped, so that different names stay different.
    The exception are names made to collide: `_u005f` before a letter that is escaped. `Topics.check` refuses two such
    names in one changefeed.
    """
    return _ILLEGAL.sub(lambda found: _escape(found[0]), _ESCAPE.sub(lambda found: _escape("_") + found[1], name))


def _escape(character: str) -> str:
    return f"_u{ord(character):04x}_"


class Topics:
    """Which topic the rows of a table go to."""

    def __init__(self, names: TopicNames, *, name: str | None = None) -> None:
        """Use the topics that *names* makes of tables, or the one topic *name*, with the prefix, for all tables."""
        self._names = names
        self._name = name

    def of(self, table: TableName) -> str:
        """Return the topic of *table*."""
        return escaped(self._names.of(table) if self._name is None else self._names.prefix + self._name)

    def of_rows(self, rows: RowBatch) -> str:
        """Return the topic of *rows*: that which a query gave them, otherwise that of their table."""
        topic = rows.topic
        return self.of(rows.schema.name) if topic is None else self.routed(topic)

    def routed(self, topic: str) -> str:
        """Return the topic that a query calls *topic*: with the prefix, and nothing escaped."""
        return self._names.prefix + topic

    def refusal(self, topic: str) -> str | None:
        """Return why Kafka never takes rows in *topic*, as far as its name tells; None when it may."""
        if topic in (".", "..") or _ILLEGAL.search(topic):
            return "has a name that Kafka does not allow; it may have letters, digits, '.', '_' and '-'"
        if len(topic) > _MAX_CHARACTERS:
            return f"has {len(topic)} characters, but Kafka allows {_MAX_CHARACTERS}"
        return "is internal to Kafka" if topic in _INTERNAL else None

    def all(self, tables: Iterable[TableName]) -> list[str]:
        """Return the topics of *tables*, each once."""
        return sorted({self.of(table) for table in tables})

    def check_routed(self) -> None:
        """Return when a query can give topics to rows. Raises: ConfigError."""
        if self._name is not None:
            raise ConfigError(
                "sink 'kafka': option 'topic_name' has no effect, because the query gives each row a cdc_topic; remove"
                " it"
            )
        reason = self.refusal(self.routed("t"))
        if reason is not None:
            raise ConfigError(f"sink 'kafka': every topic with topic_prefix '{self._names.prefix}' {reason}; change it")

    def check(self, tables: Iterable[TableName]) -> None:
        """Return when Kafka accepts the topics of *tables*. Raises: ConfigError, also when two tables share a topic."""
        if self._name == "":
            raise ConfigError("sink 'kafka': option 'topic_name' is empty; name a topic, or remove the option")
        if self._name is not None and self._names.pattern is not None:
            raise ConfigError(
                "sink 'kafka': options 'topic' and 'topic_name' cannot be used together; remove topic_name"
            )
        owners: dict[str, TableName] = {}
        for table in sorted(set(tables)):
            topic = self.of(table)
            if topic in (".", ".."):
                raise ConfigError(
                    f"table {table} would go to topic '{topic}', which Kafka does not allow; set topic_prefix"
                )
            if len(topic) > _MAX_CHARACTERS:
                raise ConfigError(
                    f"table {table} would go to a topic whose name has {len(topic)} characters, but Kafka allows "
                    f"{_MAX_CHARACTERS}; shorten topic_prefix, remove full_table_name, or set topic_name"
                )
            if topic in owners and self._name is None and not self._names.shared:
                raise ConfigError(
                    f"tables {owners[topic]} and {table} would both go to topic '{topic}'; {self._names.remedy}, use a"
                    " separate changefeed for each table, or set topic_name to send all tables to one topic"
                )
            owners[topic] = table
