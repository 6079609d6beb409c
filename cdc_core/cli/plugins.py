"""`cdc plugins`, `cdc options` and `cdc demo`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from cdc_core.cli.plugin_commands import Commands
from cdc_core.cli.session import CliSession, debug_option, json_option
from cdc_core.cli.tables import echo_table
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.errors import ConfigError, PluginLoadError
from cdc_core.options import OptionDoc, describe, did_you_mean
from cdc_core.plugins.classes import load_options
from cdc_core.plugins.entry_points import DEMOS, Published, published
from cdc_core.plugins.host import PluginHost


@click.command
@json_option
@debug_option
@click.pass_context
def plugins(context: click.Context, as_json: bool) -> None:
    """List the installed sources (rangefeeds), encoders, sinks, query functions, and commands.

    Shows the distribution of each, its version, and any problem with it.
    """
    root = context.find_root().command
    found = [*PluginHost.load().listing(), *(root.listing() if isinstance(root, Commands) else ())]
    if as_json:
        context.obj.echo_json([asdict(each) for each in found])
        return
    rows = [("KIND", "NAME", "SCHEMES", "DISTRIBUTION", "VERSION", "SUMMARY")]
    for each in found:
        summary = f"PROBLEM: {each.problem}" if each.problem else each.summary
        schemes = ",".join(each.schemes) or "-"
        rows.append((each.kind or "-", each.name, schemes, each.distribution, each.version, summary))
    echo_table(context.obj, rows)


@click.command
@click.argument("kind", type=click.Choice(["changefeed", "source", "rangefeed", "encoder", "sink"]))
@click.argument("name", required=False)
@json_option
@debug_option
@click.pass_obj
def options(session: CliSession, kind: str, name: str | None, as_json: bool) -> None:
    """Explain the options of one component, for example `cdc options sink cloudstorage` or `cdc options changefeed`.

    Set them in the table [changefeed.NAME.options]. Options of a sink may also be parameters of its URI.
    """
    found = describe(_options_class("rangefeed" if kind == "source" else kind, name))
    if as_json:
        session.echo_json([asdict(each) for each in found])
        return
    for line in _explained(found):
        click.echo(line)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[NAME] [OPTIONS]...")
@click.pass_context
def demo(context: click.Context, arguments: Sequence[str]) -> int:
    """Run a demo that an installed package publishes. NAME may be omitted when there is only one.

    `cdc demo NAME --help` explains the options of a demo.
    """
    found = published(DEMOS)
    named = bool(arguments) and not arguments[0].startswith("-")
    if not named and set(arguments) & {"-h", "--help"} and len(found) != 1:
        click.echo(context.get_help())
        return 0
    if not found:
        raise ConfigError("no demo is installed; install a package that publishes a demo, and 'cdc-core[spark]'")
    if named and arguments[0] not in found:
        raise ConfigError(f"there is no demo '{arguments[0]}'{did_you_mean(arguments[0], found)}")
    if not named and len(found) > 1:
        raise ConfigError(f"several demos are installed; choose one: {', '.join(found)}")
    name = arguments[0] if named else next(iter(found))
    return _run_demo(found[name][0], list(arguments[1:] if named else arguments))


def _run_demo(claim: Published, arguments: list[str]) -> int:
    try:
        function = claim.load()
    except ImportError as error:
        hint = f"pip install '{claim.distribution}[demo]'"
        raise PluginLoadError(f"demo '{claim.name}' cannot be loaded: {error}; {hint}") from error
    return int(function(arguments))


def _options_class(kind: str, name: str | None) -> type[Any]:
    if kind == "changefeed":
        return ChangefeedOptions
    host = PluginHost.load()
    known = sorted(listed.name for listed in host.listing() if listed.kind == kind)
    if name is None:
        raise ConfigError(f"name the {kind}; installed: {', '.join(known) or 'none'}")
    return load_options(host.component(kind, name))


def _explained(rows: Sequence[OptionDoc]) -> list[str]:
    if not rows:
        return ["It has no options."]
    lines: list[str] = []
    for row in rows:
        secret = "; secret" if row.secret else ""
        lines.append(f"{row.name}  ({row.type}; default {row.default}{secret})")
        lines += textwrap.wrap(row.doc, width=96, initial_indent="    ", subsequent_indent="    ")
    return lines
