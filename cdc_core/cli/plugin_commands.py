"""Commands of `cdc` that installed packages publish in the entry-point group `cdc_core.commands`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from cdc_core.errors import CdcError, PluginConflictError, PluginLoadError
from cdc_core.plugins.entry_points import COMMANDS, Published, published

__all__ = ["CommandListing", "Commands"]


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

    A published command is imported when it is run or listed, and not before. One that cannot be loaded is listed with
    its problem, and only running it is an error. A built-in command cannot be replaced.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *published(COMMANDS)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        builtin = super().get_command(ctx, cmd_name)
        if builtin is not None:
            return builtin
        claims = published(COMMANDS).get(cmd_name)
        return None if claims is None else _loaded(claims[0])

    def listing(self) -> list[CommandListing]:
        """Return every published command with where it comes from and what is wrong with it."""
        return [
            _listing(claim, taken=name in self.commands)
            for name, claims in published(COMMANDS).items()
            for claim in claims
        ]


def _loaded(claim: Published) -> click.Command:
    """Return the command, or a stand-in that raises the reason why there is none when it is run."""
    try:
        command = claim.load()
    except PluginConflictError as error:
        return _stand_in(claim.name, str(error), error)
    except (Exception, SystemExit) as error:  # whatever a stranger's module does when it is imported
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
    else:
        if isinstance(command, click.Command):
            return command
        problem = f"is a {type(command).__name__}, not a click command"
    return _stand_in(claim.name, problem, PluginLoadError(f"the command '{claim.name}' of {claim.origin} {problem}"))


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


def _listing(claim: Published, *, taken: bool) -> CommandListing:
    command = _loaded(claim)
    problem = command.problem if isinstance(command, _StandIn) else ""
    if taken:
        problem = f"'{claim.name}' is a built-in command and cannot be replaced"
    return CommandListing(
        name=claim.name,
        distribution=claim.distribution,
        version=claim.version,
        summary=command.get_short_help_str(limit=100),
        problem=problem,
    )
