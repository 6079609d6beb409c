"""The command `cdc`."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence

import click

from cdc_core.cli.plugin_commands import Commands
from cdc_core.cli.session import CliSession
from cdc_core.errors import CdcError
from cdc_core.masking import secret_forms, secrets_of_uris
from cdc_core.open_files import with_open_files_limit

# At its end, Python looks for garbage among all that was loaded, which takes a quarter of a second.
atexit.register(gc.freeze)

_SECTIONS = {
    "Set up and try": {
        "demo": ("plugins:demo", "Run a demo changefeed."),
        "plugins": ("plugins:plugins", "List the installed sources, encoders, sinks and functions."),
        "options": ("plugins:options", "Explain the options of a source, an encoder, a sink or the changefeed."),
        "check": ("check:check", "Check that a changefeed can run; change nothing."),
        "explain": ("explain:explain", "Show what a query reads, and how Spark evaluates it."),
        "preview": ("watch:preview", "Show the messages that a changefeed would send; send nothing."),
        "watch": ("watch:watch", "Print changes to tables as they happen, without a sink; save nothing."),
    },
    "Changefeeds": {
        "run": ("run:run", "Run a changefeed."),
        "show": ("show:show", "Show the state and the progress of changefeeds."),
        "pause": ("lifecycle:pause", "Pause a changefeed or job."),
        "resume": ("lifecycle:resume", "Resume a paused changefeed or job."),
        "alter": ("create:alter", "Change the tables of a changefeed, or the definition of a job."),
        "rescan": ("repeating:rescan", "Emit all or part of a table again."),
        "move": ("repeating:move", "Move a stopped changefeed to another position at its source."),
        "drop": ("drop:drop", "Remove a changefeed from its source and from the progress store."),
        "replay-dead-letters": ("repeating:replay_dead_letters", "Send dead letters to the sink again."),
    },
    "Jobs, which nodes run": {
        "create": ("create:create", "Create a job: a changefeed that nodes run."),
        "jobs": ("jobs:jobs", "List the jobs."),
        "cancel": ("lifecycle:cancel", "Cancel a job for good."),
        "owner": ("lifecycle:owner", "Change the owner of a job."),
        "schedule": ("schedule:schedule", "Run a changefeed as a scan on a cron schedule."),
        "sql": ("sql:sql", "Create, change and list jobs with CockroachDB's SQL statements."),
    },
    "Nodes and servers": {
        "node": ("node:node", "Run a node, which runs jobs until it is drained."),
        "nodes": ("jobs:nodes", "List the nodes."),
        "drain": ("lifecycle:drain", "Make a node hand over its jobs and stop."),
        "serve": ("serving:serve", "Serve the REST interface, the web page and metrics."),
        "token": ("token:token", "Create an access token for a server."),
        "pack": ("pack:pack", "Pack plugins and libraries for the executors of a cluster."),
        "worker-resources": (
            "locality:worker_resources_command",
            "Declare the locality of a worker in a Spark standalone cluster.",
        ),
    },
    "Diagnostics": {
        "events": ("show:events", "Show what happened to changefeeds and nodes."),
        "trace": ("trace:trace", "Follow changes to a row from commit to sink."),
        "audit": ("audit:audit", "Compare what a changefeed has delivered with its source."),
        "debug": ("debug:debug", "Collect diagnostics in one archive."),
        "docs": ("docs:docs", "Print a page of the documentation."),
        "mcp": ("mcp:mcp", "Run an MCP server, so that an assistant can list, explain and diagnose changefeeds."),
    },
}
"""The commands as the help lists them: where each is, `module:function` in `cdc_core.cli`, and what it does."""


@click.group(
    cls=Commands,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 success, 1 the changefeed failed, 2 wrong usage or configuration, 130 interrupted. "
    "`cdc docs command-line` explains shell completion.",
)
@click.version_option(package_name="cdc-core", prog_name="cdc")
def cdc() -> None:
    """Deliver every change in a database to Kafka, files or webhooks, in order and without gaps.

    A changefeed is described in a TOML file:

    \b
      [changefeed.orders]
      source = "postgresql://user:${PASSWORD}@host:5432/shop"
      tables = ["public.orders"]
      sink   = "file:///data/out"

    \b
      cdc check shop.toml     check that it can run; change nothing
      cdc run shop.toml       run it until Ctrl-C; the next run continues where it stopped
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line *args* (default: the process's) and return the exit status.

    An error is one masked line on stderr; `--debug` shows its traceback as well.
    """
    _open_standard_streams()
    session = CliSession()
    session.add_secrets(secret_forms(secrets_of_uris(sys.argv[1:] if args is None else [*args])))
    try:
        status = cdc.main(None if args is None else list(args), "cdc", obj=session, standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (click.Abort, KeyboardInterrupt):
        session.say_error("interrupted")
        return 130
    except click.ClickException as error:
        error.show(said := io.StringIO())
        usage, found, _ = said.getvalue().partition("Error: ")
        session.say_error(error.format_message(), usage=usage + found if found else "")
        return error.exit_code
    except CdcError as error:
        _report(error, session)
        session.say_error(with_open_files_limit(f"error: {error}", error))
        return error.exit_status
    except BrokenPipeError:
        return 1
    except Exception as error:
        _report(error, session)
        hint = "" if session.debug else "; run with --debug to see where"
        what = f"error: {error}" if isinstance(error, OSError) else f"internal error: {type(error).__name__}: {error}"
        if isinstance(error, FileNotFoundError) and error.filename is None:
            what, hint = "error: the current directory no longer exists; change to another one", ""
        text = with_open_files_limit(what, error)
        session.say_error(text + hint)
        return 1
    return status if isinstance(status, int) else 0


def _open_standard_streams() -> None:
    """Have streams that are closed lead nowhere: what is opened later would get their numbers, and their output."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            file = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(file.fileno(), True)
            setattr(sys, name, file)


def _report(error: Exception, session: CliSession) -> None:
    if session.debug:
        session.say_error("".join(traceback.format_exception(error)).rstrip())
