"""The command `cdc`."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import click

from cdc_core.cli.lazy_commands import LazyCommands
from cdc_core.cli.plugin_commands import Commands
from cdc_core.cli.session import CliSession
from cdc_core.errors import CdcError

__all__ = ["main"]

_COMMANDS = {
    "alter": "alter:alter",
    "audit": "audit:audit",
    "cancel": "cancel:cancel",
    "check": "run:check",
    "create": "create:create",
    "debug": "debug:debug",
    "demo": "plugins:demo",
    "docs": "docs:docs",
    "drain": "drain:drain",
    "drop": "drop:drop",
    "events": "events:events",
    "explain": "explain:explain",
    "jobs": "jobs:jobs",
    "move": "move:move",
    "node": "node:node",
    "nodes": "nodes:nodes",
    "options": "plugins:options",
    "owner": "owner:owner",
    "pack": "pack:pack",
    "pause": "pause:pause",
    "plugins": "plugins:plugins",
    "preview": "preview:preview",
    "replay-dead-letters": "replay:replay_dead_letters",
    "rescan": "rescan:rescan",
    "resume": "resume:resume",
    "run": "run:run",
    "schedule": "schedule:schedule",
    "serve": "serve:serve",
    "show": "show:show",
    "sql": "sql:sql",
    "token": "token:token",
    "trace": "trace:trace",
    "watch": "watch:watch",
    "worker-resources": "locality:worker_resources_command",
}
"""Where each command is: `module:function` in `cdc_core.cli`."""


@click.group(
    cls=Commands,
    commands=LazyCommands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 success, 1 the changefeed failed, 2 wrong usage or configuration, 130 interrupted.",
)
@click.version_option(package_name="cdc-core", prog_name="cdc")
def cdc() -> None:
    """Deliver every change of a database to Kafka, files or webhooks, in order and without gaps.

    A changefeed is described in a TOML file:

    \b
      [changefeed.orders]
      source = "postgresql://user:${PASSWORD}@host:5432/shop"
      tables = ["public.orders"]
      sink   = "file:///data/out"

    \b
      cdc check shop.toml     check that it can run; changes nothing
      cdc run shop.toml       run it until Ctrl-C; the next run continues where it stopped
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line *args* (default: the process's) and return the exit status.

    An error is one masked line on stderr; `--debug` shows its traceback as well.
    """
    session = CliSession()
    try:
        status = cdc.main(args=None if args is None else list(args), obj=session, standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (click.Abort, KeyboardInterrupt):
        session.say_error("interrupted")
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CdcError as error:
        _report(error, session)
        session.say_error(f"error: {error}")
        return error.exit_status
    except BrokenPipeError:
        return 1
    except Exception as error:
        _report(error, session)
        hint = "" if session.debug else "; run with --debug to see where"
        session.say_error(f"internal error: {type(error).__name__}: {error}{hint}")
        return 1
    return status if isinstance(status, int) else 0


def _report(error: Exception, session: CliSession) -> None:
    if session.debug:
        session.say_error("".join(traceback.format_exception(error)).rstrip())
