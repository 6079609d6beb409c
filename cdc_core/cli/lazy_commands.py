"""The commands of `cdc`, each imported when it is asked for: one loads what the others need no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name. *places* says where each is: `module:function` in `cdc_core.cli`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module, _, function = self._places[name].partition(":")
            self._commands[name] = getattr(import_module(f"cdc_core.cli.{module}"), function)
        return self._commands[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name] = ""
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._commands.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
