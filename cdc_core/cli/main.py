"""The command `cdc`."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import click

from cdc_core.cli.alter import alter
from cdc_core.cli.audit import audit
from cdc_core.cli.cancel import cancel
from cdc_core.cli.create import create
from cdc_core.cli.debug import debug
from cdc_core.cli.docs import docs
from cdc_core.cli.drain import drain
from cdc_core.cli.drop import drop
from cdc_core.cli.events import events
from cdc_core.cli.explain import explain
from cdc_core.cli.jobs import jobs
from cdc_core.cli.locality import worker_resources_command
from cdc_core.cli.node import node
from cdc_core.cli.nodes import nodes
from cdc_core.cli.owner import owner
from cdc_core.cli.pack import pack
from cdc_core.cli.pause import pause
from cdc_core.cli.plugin_commands import Commands
from cdc_core.cli.plugins import demo, options, plugins
from cdc_core.cli.preview import preview
from cdc_core.cli.replay import replay_dead_letters
from cdc_core.cli.rescan import rescan
from cdc_core.cli.resume import resume
from cdc_core.cli.run import check, run
from cdc_core.cli.schedule import schedule
from cdc_core.cli.serve import serve
from cdc_core.cli.session import CliSession
from cdc_core.cli.show import show
from cdc_core.cli.sql import sql
from cdc_core.cli.token import token
from cdc_core.cli.watch import watch
from cdc_core.errors import CdcError

__all__ = ["main"]


@click.group(
    cls=Commands,
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


for command in (
    run,
    check,
    explain,
    watch,
    preview,
    audit,
    node,
    show,
    events,
    debug,
    resume,
    schedule,
    rescan,
    alter,
    replay_dead_letters,
    drop,
    pack,
    worker_resources_command,
    plugins,
    options,
    docs,
    demo,
):
    cdc.add_command(command)
for command in (create, jobs, pause, cancel, nodes, drain, owner, sql, serve, token):
    cdc.add_command(command)


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
