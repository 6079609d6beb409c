"""Options of commands from a declared options class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from cdc_core.options import describe

F = TypeVar("F", bound=Callable[..., Any])


def declared_options(cls: type, *, variables: Mapping[str, str], repeated: str | None = None) -> Callable[[F], F]:
    """Give a command an option for each field of *cls*, with the text that is parsed later; *repeated* is NAME=VALUE.

    *variables* are environment variables by option.
    """

    def decorate(command: F) -> F:
        for row in reversed(describe(cls)):
            is_flag = row.type == "flag"
            default = "" if is_flag or row.default in ("(required)", "(none)", '""') else f" Default: {row.default}."
            variable = variables.get(row.name)
            kind: dict[str, Any] = {"is_flag": True, "flag_value": "true"} if is_flag else {}
            if not is_flag:
                kind = {"metavar": "NAME=VALUE" if row.name == repeated else row.type.upper().split()[0]}
            command = click.option(
                option_flag(row.name),
                row.name,
                multiple=row.name == repeated,
                envvar=variable,
                default=None,
                help=row.doc
                + default
                + (f" Can also be set by the environment variable {variable}." if variable else ""),
                **kind,
            )(command)
        return command

    return decorate


def given_options(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of *given* that belong to *cls* and were given."""
    return {field.name: given[field.name] for field in fields(cls) if given[field.name] is not None}


def option_flag(name: str) -> str:
    """Return how the option is written on the command line."""
    return f"--{name.replace('_', '-')}"
