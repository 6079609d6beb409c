"""`cdc verify`: test an installed plugin without writing a test."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cdc_core.cli.session import CliSession, debug_option

F = TypeVar("F", bound=Callable[..., Any])
_LABELS = {"PASS": "green", "FAIL": "red", "ERROR": "red", "SKIP": "yellow", "XFAIL": "yellow"}


@click.group(short_help="Test whether an installed plugin keeps its promises.")
def verify() -> None:
    """Test whether an installed sink, encoder or rangefeed keeps the promises of its kind.

    Shows the contract of each broken promise. The exit status is 0 if no promise is broken, 1 if any is, and 2 if you
    must change something before the test can run.
    """


def _shared(command: F) -> F:
    """Add the options that all three kinds have."""
    for decorate in (
        debug_option,
        click.option(
            "--timeout",
            "timeout_s",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            default=120.0,
            show_default=True,
            help="Time limit for each promise.",
        ),
        click.option(
            "-k",
            "chosen",
            metavar="EXPRESSION",
            default="",
            help="Test only promises whose names match this expression.",
        ),
        click.option(
            "--report",
            metavar="FILE",
            type=click.Path(path_type=Path, allow_dash=True),
            help="Write the outcome of each promise to this file as JSON; - is standard output.",
        ),
        click.option(
            "--capability",
            "capabilities",
            metavar="NAME",
            multiple=True,
            help="Declare that the component has this capability, and test the capability's promises. May be repeated.",
        ),
        click.option(
            "--option",
            "options",
            metavar="NAME=VALUE",
            multiple=True,
            help="Set this option, as in a changefeed. The value may contain {unique}. May be repeated.",
        ),
    ):
        command = decorate(command)
    return command


@verify.command("sink", short_help="Test a sink. Writes to the URI.")
@click.argument("name")
@click.option("--uri", required=True, help="Where to write. {unique} is replaced by a different word for each promise.")
@click.option("--format", "format_", metavar="ENCODER", default="json", show_default=True, help="Encoder for the test.")
@_shared
def sink(name: str, uri: str, format_: str, **of_all: Any) -> int:
    """Test the sink NAME, for example: cdc verify sink cloudstorage --uri 'file:///tmp/out/{unique}'

    Each test writes to a different place below the URI. Nothing is deleted.
    """
    return _verify("sink", name, uri=uri, format_=format_, **of_all)


@verify.command("encoder", short_help="Test an encoder.")
@click.argument("name")
@_shared
def encoder(name: str, **of_all: Any) -> int:
    """Test the encoder NAME, for example: cdc verify encoder json"""
    return _verify("encoder", name, **of_all)


@verify.command("rangefeed", short_help="Test a rangefeed. Creates and drops tables at the URI.")
@click.argument("name")
@click.option("--uri", required=True, help="A database in which tables may be created and dropped.")
@_shared
def rangefeed(name: str, uri: str, **of_all: Any) -> int:
    """Test the rangefeed NAME, for example: cdc verify rangefeed postgres --uri postgresql://user@host:5432/scratch"""
    return _verify("rangefeed", name, uri=uri, **of_all)


def _verify(
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
    # `cdc --help` imports this module; these import pytest and pyarrow.
    from cdc_conformance.given import Given
    from cdc_conformance.verification import Verification, writable
    from cdc_core.plugins.host import PluginHost

    given = Given.parsed(kind, name, uri=uri, options=options, format_=format_, capabilities=capabilities)
    session = click.get_current_context().find_object(CliSession) or CliSession()
    session.add_secrets(given.plain_secrets())
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
        say(f"wrote {report}")
    return status


def _coloured(line: str) -> str:
    label = line.strip().partition(" ")[0]
    if label not in _LABELS or os.environ.get("NO_COLOR"):
        return line
    return line.replace(label, click.style(label, fg=_LABELS[label]), 1)
