"""`cdc verify`: prove an installed plugin without writing a test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cdc_conformance.given import Given
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.plugins.host import PluginHost

__all__ = ["verify"]

F = TypeVar("F", bound=Callable[..., Any])
_LABELS = {"PASS": "green", "FAIL": "red", "ERROR": "red", "SKIP": "yellow", "XFAIL": "yellow"}


@click.group(short_help="Prove that an installed plugin keeps its promises.")
def verify() -> None:
    """Prove that an installed sink, encoder or rangefeed keeps the promises of its kind.

    Asks for one promise after the other and shows the contract of each that is broken. Exit status: 0 all kept (or not
    asked for, with the reason), 1 a promise is broken, 2 something must be changed by you.
    """


def _shared(command: F) -> F:
    """Give a command the options that all three kinds have."""
    for decorate in (
        debug_option,
        click.option(
            "--timeout",
            "timeout_s",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            default=120.0,
            show_default=True,
            help="How long one promise may take.",
        ),
        click.option("-k", "chosen", metavar="EXPRESSION", default="", help="Ask only for what matches."),
        click.option(
            "--report",
            metavar="FILE",
            type=click.Path(path_type=Path, allow_dash=True),
            help="Write what became of each promise as JSON; - is standard output.",
        ),
        click.option(
            "--capability",
            "capabilities",
            metavar="NAME",
            multiple=True,
            help="What it can do beyond what every one must: its promises are asked for too. Repeatable.",
        ),
        click.option(
            "--option",
            "options",
            metavar="NAME=VALUE",
            multiple=True,
            help="An option, as in a changefeed; may hold {unique}. Repeatable.",
        ),
    ):
        command = decorate(command)
    return command


@verify.command("sink", short_help="Prove a sink: writes to the URI.")
@click.argument("name")
@click.option("--uri", required=True, help="Where to write; {unique} becomes a word that is new for each promise.")
@click.option("--format", "format_", metavar="ENCODER", default="json", show_default=True, help="The encoder.")
@_shared
def sink(name: str, uri: str, format_: str, **of_all: Any) -> int:
    """Prove the sink NAME: cdc verify sink cloudstorage --uri 'file:///tmp/out/{unique}'

    Everything is written to a new place below the URI, and left there.
    """
    return _prove("sink", name, uri=uri, format_=format_, **of_all)


@verify.command("encoder", short_help="Prove an encoder.")
@click.argument("name")
@_shared
def encoder(name: str, **of_all: Any) -> int:
    """Prove the encoder NAME: cdc verify encoder json"""
    return _prove("encoder", name, **of_all)


@verify.command("rangefeed", short_help="Prove a rangefeed: creates and drops tables at the URI.")
@click.argument("name")
@click.option("--uri", required=True, help="A database in which tables may be created and dropped.")
@_shared
def rangefeed(name: str, uri: str, **of_all: Any) -> int:
    """Prove the rangefeed NAME: cdc verify rangefeed postgres --uri postgresql://user@host:5432/scratch"""
    return _prove("rangefeed", name, uri=uri, **of_all)


def _prove(
    kind: str,
    name: str,
    *,
    options: Sequence[str],
    capabilities: Sequence[str],
    report: Path | None,
    chosen: str,
    timeout_s: float,
    uri: str | None = None,
    format_: str | None = None,
) -> int:
    from cdc_conformance.verification import Verification, writable  # pytest: only for those who verify

    given = Given.parsed(kind, name, uri=uri, options=options, format_=format_, capabilities=capabilities)
    session = click.get_current_context().find_object(CliSession) or CliSession()
    session.add_secrets(given.plain_secrets())
    given.check(PluginHost.load())
    session.add_secrets(given.secrets(PluginHost.load()))
    to_stdout = report is not None and str(report) == "-"
    if report is not None and not to_stdout:
        writable(report)

    def say(line: str) -> None:
        click.echo(_coloured(session.masked(line)), file=sys.stderr if to_stdout else sys.stdout)

    verification = Verification(given, say=say, chosen=chosen, timeout_s=timeout_s)
    status = verification.run()
    if to_stdout:
        click.echo(json.dumps(verification.report.document(), indent=2, ensure_ascii=False))
    elif report is not None:
        verification.report.write(report)
        say(f"written to {report}")
    return status


def _coloured(line: str) -> str:
    label = line.strip().partition(" ")[0]
    return line.replace(label, click.style(label, fg=_LABELS[label]), 1) if label in _LABELS else line
