"""What the commands for jobs share: which store, waiting for what was requested, and what they print."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.located import STORE_VARIABLE, opened, require_store, state_of
from cdc_core.cli.session import CliSession, debug_option, json_option
from cdc_core.errors import ConfigError
from cdc_core.store.job_values import JobRecord
from cdc_core.store.verbs import Verb

_MAX_OWNER_LENGTH = 64

job_store_option = click.option(
    "--store",
    metavar="DIR|URL",
    envvar=STORE_VARIABLE,
    help=f"Progress store that the jobs and nodes use. Default: the environment variable {STORE_VARIABLE}.",
)
wait_option = click.option("--wait", is_flag=True, help="Wait until the command has taken effect.")


@contextmanager
def changefeeds_at(session: CliSession, store: str | None, *, create: bool = False) -> Iterator[Changefeeds]:
    """Open the store of the jobs for verbs; its secrets are masked from now on. Raises: ConfigError."""
    if not store:
        raise ConfigError(f"no store is given; use --store DIR|URL, or set {STORE_VARIABLE}")
    with opened(session, state_of(Path(), store)[1]) as changefeeds:
        if create:
            changefeeds.store.open()
        else:
            require_store(changefeeds.store, option="--store")
        yield changefeeds


def job_command(function: Callable[..., int | None]) -> Callable[..., Any]:
    """Give a command --store, --json and --debug; call it with the session and, open, the store for verbs."""

    @job_store_option
    @json_option
    @debug_option
    @click.pass_obj
    @wraps(function)
    def called(session: CliSession, /, store: str | None, **given: Any) -> int | None:
        with changefeeds_at(session, store) as changefeeds:
            return function(session, changefeeds, **given)

    return called


def await_job(changefeeds: Changefeeds, job: JobRecord, verb: Verb) -> JobRecord:
    """Return the job when *verb* is done: see `Changefeeds.wait`. Ctrl-C ends the wait and not the request."""
    if not (job.is_run or changefeeds.living_nodes()):
        click.echo("no node is alive; waiting for one", err=True)
    return changefeeds.wait(job.name, verb)


def adoption_text(changefeeds: Changefeeds, job: JobRecord) -> str:
    """Return who runs *job*, for whoever let it run."""
    if job.node is not None:
        return f"node {job.node} runs it"
    if changefeeds.may_be_adopted(job):
        return "a node will adopt it"
    return "no matching node is alive; the first one to start will run it"


def user_name() -> str:
    """Return the name of the user of this process. Raises: ConfigError when it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container may run as a number
        raise ConfigError("this process's user has no user name; set LOGNAME, or use --owner") from error


def require_owner(owner: str) -> str:
    """Return *owner*. Raises: ConfigError when it is not a name."""
    if not owner.strip() or len(owner) > _MAX_OWNER_LENGTH:
        raise ConfigError(f"'{owner}' is not a valid owner; use 1 to {_MAX_OWNER_LENGTH} characters")
    return owner


def by_user() -> str:
    """Return who asks for a change, for the history of a job."""
    try:
        return f"requested by {user_name()}"
    except ConfigError:
        return f"requested by user {os.getuid()}"


def echo_job(session: CliSession, changefeeds: Changefeeds, job: JobRecord, text: str, *, as_json: bool) -> None:
    """Print what was done: *text*, or the job as `cdc jobs --json` does; what `cdc run` runs as `cdc show --json`."""
    if as_json and job.is_run:
        session.echo_json(changefeeds.report(job.name).to_json())
    elif as_json:
        session.echo_json(changefeeds.job_report(job).job_json())
    else:
        click.echo(session.masked(text))


def agreed(question: str, *, yes: bool, declined: str = "nothing was removed") -> bool:
    """Return whether the user agrees; say *declined* if not. Raises: ConfigError without a terminal to ask on."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("this needs confirmation, and standard input is not a terminal; use --yes")
    if click.confirm(question):
        return True
    click.echo(declined)
    return False
