"""The keys of a connector's configuration, described as Kafka Connect's ConfigDef describes them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.flat import flat_options
from cdc_core.options import describe, did_you_mean

CLASS = "cdc.Changefeed"
"""The one connector: a changefeed."""

_TYPES = {bool: "BOOLEAN", int: "LONG", float: "DOUBLE", str: "STRING"}


def is_our_class(name: str) -> bool:
    """Return whether *name*, written in one of the ways that Kafka Connect accepts, means a changefeed."""
    short = name.removesuffix("Connector")
    return short in (CLASS, CLASS.rpartition(".")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key. `option` is the option that it stands for."""

    name: str
    type: str
    doc: str
    group: str
    default: str | None = None
    required: bool = False
    importance: str = "MEDIUM"
    choices: Sequence[str] = ()
    option: str | None = None
    order: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the key as Kafka Connect's ConfigKeyInfo. `order` is what `order_in_group` was called up to 4.1."""
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            "default_value": self.default,
            "importance": self.importance,
            "documentation": self.doc,
            "group": self.group,
            "order_in_group": self.order,
            "order": self.order,
            "width": {"BOOLEAN": "SHORT", "LONG": "SHORT", "DOUBLE": "SHORT", "LIST": "LONG"}.get(self.type, "MEDIUM"),
            "display_name": self.name.replace("_", " ").replace(".", " ").capitalize(),
            "dependents": [],
        }


def _common(name: str, type_: str, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=type_, doc=doc, group="Common", importance="HIGH", **more)


COMMON = tuple(
    dataclasses.replace(key, order=number)
    for number, key in enumerate(
        (
            _common("name", "STRING", "Name of the connector and of its job.", required=True),
            _common(
                "connector.class", "STRING", f"{CLASS}, the only connector class.", required=True, choices=(CLASS,)
            ),
            _common(
                "tasks.max",
                "INT",
                "Must be at least 1. A changefeed is always one task, whose work Spark divides.",
                default="1",
            ),
            _common("source", "STRING", "URI of the source, or a JSON list of URIs.", required=True),
            _common("tables", "LIST", "The tables to watch. Required unless 'query' is set."),
            _common("sink", "STRING", "URI of the sink.", required=True),
            _common("format", "STRING", "Name of the encoder.", default="json"),
            _common("query", "STRING", "A query over one table, used instead of 'tables'."),
        ),
        start=1,
    )
)
"""Beside these there are `table.NAME`, `functions.NAME`, `master` and Spark properties, which have no fixed names."""


_OF_SINKS = "set the property as an option of the sink"
_INSTEAD: Mapping[str, str] = {
    "admin.override": _OF_SINKS,
    "config.action.reload": "remove it: each run resolves its references again",
    "errors": "set 'on_error'",
    "exactly.once.support": "remove it: delivery is at least once",
    "header.converter": "remove it",
    "key.converter": "set 'format'",
    "offsets.storage.topic": "remove it: positions are in the progress store",
    "predicates": "write a condition in 'query'",
    "producer.override": _OF_SINKS,
    "tasks.max.enforce": "remove it: a changefeed is always one task",
    "topics": "list tables in 'tables'",
    "transaction.boundary": "remove it: delivery is at least once",
    "transforms": "select columns and rows with 'query'",
    "value.converter": "set 'format'",
}
"""What to do about keys of Kafka Connect, and those below them, that a changefeed does not have."""


def remedy(name: str, known: Collection[str]) -> str:
    """Return what to do about an option that is not *known*, to be put after the error."""
    found = [instead for key, instead in _INSTEAD.items() if name == key or name.startswith(f"{key}.")]
    return f"; {found[0]}" if found else did_you_mean(name, known)


def keys_of(options: type, *, group: str) -> list[ConfigKey]:
    """Return the keys of a class of options."""
    return [dataclasses.replace(key, order=number) for number, key in enumerate(_keys(options, group), start=1)]


def _keys(options: type, group: str) -> Iterator[ConfigKey]:
    hints = typing.get_type_hints(options)
    fields = {field.name: field for field in dataclasses.fields(options)}
    for row in describe(options):
        field, hint = fields[row.name], hints[row.name]
        required = field.default is dataclasses.MISSING
        has_default = not required and field.default not in (None, ())
        (name,) = flat_options({row.name: ""})
        yield ConfigKey(
            name=name,
            type="PASSWORD" if row.secret else _type(hint),
            doc=f"{row.doc} Type: {row.type}.",
            group=group,
            default=("" if field.default == "" else row.default) if has_default else None,
            required=required,
            importance="HIGH" if required else "MEDIUM",
            choices=_choices(hint),
            option=row.name,
        )


def _type(hint: Any) -> str:
    hint = _inner(hint)
    return "LIST" if typing.get_origin(hint) is tuple else _TYPES.get(hint, "STRING")


def _choices(hint: Any) -> Sequence[str]:
    hint = _inner(hint)
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    return tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else ()


def _inner(hint: Any) -> Any:
    """Return *hint* without None."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    (inner,) = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    return inner


CORE = tuple(keys_of(ChangefeedOptions, group="Changefeed"))
