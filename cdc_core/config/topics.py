"""The topics of a changefeed, as far as its definition tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_core.config.listed_tables import database_of, named_tables
from cdc_core.messages import TopicNames
from cdc_core.uris import split_parameters

__all__ = ["topics_of"]


def topics_of(definition: Mapping[str, Any]) -> list[str] | None:
    """Return the topics by the options about them; None where patterns decide which tables there are."""
    written, source = definition.get("written", definition), definition["source"]
    names = named_tables(definition["tables"], database_of(source if isinstance(source, str) else source[0]))
    if names is None:
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
    return list(dict.fromkeys(map(topics.of, names)))
