"""The commands of `cdc`: the built-in ones, and those that installed packages publish in `cdc_core.commands`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from cdc_core.errors import CdcError, PluginConflictError, PluginLoadError
from cdc_core.plugins.entry_points import COMMANDS, Listing, Published, published


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


class Commands(click.Group):
    """The built-in commands, and those that installed packages publish.

    *sections* are those of the help: by title, the place and the summary of each command by name. A built-in command is
    imported when it is run, a published one when it is run or listed. One that cannot be loaded is listed with its
    problem, and only running it is an error. A built-in command cannot be replaced.
    """

    def __init__(self, *, sections: Mapping[str, Mapping[str, tuple[str, str]]], **attributes: Any) -> None:
        places = {name: place for section in sections.values() for name, (place, _) in section.items()}
        super().__init__(commands=LazyCommands(places), **attributes)
        self._sections = {
            title: [(name, summary) for name, (_, summary) in section.items()] for title, section in sections.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *published(COMMANDS)})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [
            (name, _loaded(claims[0]).get_short_help_str(limit=100))
            for name, claims in published(COMMANDS).items()
            if name not in self.commands
        ]
        width = max(map(len, self.list_commands(ctx)))
        for title, rows in {**self._sections, "Other packages": others}.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        summaries = dict(row for rows in self._sections.values() for row in rows)
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        found = [CompletionItem(name, help=summaries.get(name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        builtin = super().get_command(ctx, cmd_name)
        if builtin is not None:
            return builtin
        claims = published(COMMANDS).get(cmd_name)
        return None if claims is None else _loaded(claims[0])

    def listing(self) -> list[Listing]:
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
    except (PluginConflictError, PluginLoadError) as error:
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


def _listing(claim: Published, *, taken: bool) -> Listing:
    command = _loaded(claim)
    problem = command.problem if isinstance(command, _StandIn) else ""
    if taken:
        problem = f"'{claim.name}' is a built-in command and cannot be replaced"
    return Listing(
        kind="command",
        name=claim.name,
        schemes=(),
        distribution=claim.distribution,
        version=claim.version,
        summary=command.get_short_help_str(limit=100),
        problem=problem,
    )
