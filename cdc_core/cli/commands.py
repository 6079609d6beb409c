"""Commands of `cdc` that installed packages bring: the entry-point group `cdc_core.commands`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import click

from cdc_core.errors import CdcError, ConfigError, PluginConflictError, PluginLoadError

__all__ = ["COMMANDS", "CommandListing", "Commands"]

COMMANDS = "cdc_core.commands"
"""Entry-point group of commands: name -> click command."""

_OURS = {"verify": "cdc-conformance", "new-plugin": "cdc-conformance"}
"""By name, the distribution that brings a well-known command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandListing:
    """One published command for people."""

    name: str
    distribution: str
    version: str
    summary: str
    problem: str


class Commands(click.Group):
    """The built-in commands, and those that installed packages publish.

    A published command is imported when it is run or listed, never for another one's sake. One that cannot be loaded is
    listed with its problem, and only running it is an error. The name of a built-in command cannot be taken over.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_published(), *_OURS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        builtin = super().get_command(ctx, cmd_name)
        if builtin is not None:
            return builtin
        claims = _published().get(cmd_name, [])
        if claims:
            return _loaded(cmd_name, claims)
        if cmd_name in _OURS:
            hint = f"pip install {_OURS[cmd_name]}"
            return _stand_in(cmd_name, hint, ConfigError(f"the command '{cmd_name}' is not installed; {hint}"))
        return None

    def listing(self) -> list[CommandListing]:
        """Return every published command with where it comes from and what is wrong with it."""
        return [
            _listing(entry_point, claims, taken=name in self.commands)
            for name, claims in sorted(_published().items())
            for entry_point in claims
        ]


def _published() -> Mapping[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=COMMANDS):
        found.setdefault(entry_point.name, []).append(entry_point)
    return found


def _loaded(name: str, claims: list[EntryPoint]) -> click.Command:
    """Return the command, or what raises the reason why there is none when it is run."""
    if len(claims) > 1:
        origins = sorted(_origin(claim) for claim in claims)
        names = " or ".join(distribution for distribution, _ in origins)
        problem = f"the command '{name}' is claimed by both {' and '.join(map(' '.join, origins))}"
        return _stand_in(name, problem, PluginConflictError(f"{problem}; uninstall one of them: pip uninstall {names}"))
    try:
        command = claims[0].load()
    except (Exception, SystemExit) as error:  # whatever a stranger's module does when it is imported
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
    else:
        if isinstance(command, click.Command):
            return command
        problem = f"is a {type(command).__name__}, not a click command"
    return _stand_in(
        name, problem, PluginLoadError(f"the command '{name}' of {' '.join(_origin(claims[0]))} {problem}")
    )


class _StandIn(click.Command):
    """Listed with what is wrong; raises it when it is run."""

    problem = ""


def _stand_in(name: str, problem: str, error: CdcError) -> click.Command:
    def fail(**_: object) -> None:
        raise error

    command = _StandIn(
        name,
        callback=fail,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help=f"({problem})",
    )
    command.problem = problem
    return command


def _listing(entry_point: EntryPoint, claims: list[EntryPoint], *, taken: bool) -> CommandListing:
    command = _loaded(entry_point.name, claims)
    problem = command.problem if isinstance(command, _StandIn) else ""
    if taken:
        problem = f"'{entry_point.name}' is a built-in command, which cannot be taken over"
    distribution, version = _origin(entry_point)
    return CommandListing(
        name=entry_point.name,
        distribution=distribution,
        version=version,
        summary=command.get_short_help_str(limit=100),
        problem=problem,
    )


def _origin(entry_point: EntryPoint) -> tuple[str, str]:
    """Return the distribution that publishes *entry_point*, and its version."""
    dist = entry_point.dist
    return (entry_point.name, "unknown") if dist is None else (dist.name, dist.version)
