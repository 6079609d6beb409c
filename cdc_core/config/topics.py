"""The topics of a changefeed, as far as its definition tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from cdc_core.messages import TopicNames
from cdc_core.schema import TableName
from cdc_core.sql_names import name_parts
from cdc_core.uris import place_of, split_parameters

__all__ = ["topics_of"]


def topics_of(definition: Mapping[str, Any]) -> list[str] | None:
    """Return the topics by the options about them; None where patterns decide which tables there are."""
    written, tables = definition.get("written", definition), definition["tables"]
    listed = [name_parts(table) or [] for table in tables]
    wild = any({"*", "?"} & {*part} for parts in listed for part, quoted in parts if not quoted)
    if wild or any(table.startswith("!") for table in tables):
        return None
    parameters = split_parameters(written["sink"], owner="the sink")[1]
    options = {name.lower(): value for name, value in {**written.get("options", {}), **parameters}.items()}
    if "topic_name" in options:
        return [str(options["topic_name"])]
    topics = TopicNames(
        full_table_name=str(options.get("full_table_name", False)).lower() == "true",
        prefix=str(options.get("topic_prefix", "")),
        pattern=options.get("topic"),
    )
    source = definition["source"]
    place = place_of(source if isinstance(source, str) else source[0])
    database = unquote(place.rpartition("://")[2].partition("/")[2].strip("/"))
    names = [TableName(database, *["public", *(part for part, _ in parts)][-2:]) for parts in listed if parts]
    return list(dict.fromkeys(map(topics.of, names)))
