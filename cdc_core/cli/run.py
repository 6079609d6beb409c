"""`cdc run`."""

from __future__ import annotations

import logging
import queue
from collections.abc import Sequence
from pathlib import Path

import click

from cdc_core.cli.locality import locality_option
from cdc_core.cli.located import Named, changefeed_command, progress_at, resolved
from cdc_core.cli.serving import exporting_metrics, metrics_option, otlp_option, serving_metrics
from cdc_core.cli.session import log_format_option
from cdc_core.cli.stop_signals import stop_signals
from cdc_core.config.definition import changed_plugins
from cdc_core.engine.history_meter import HistoryMeter
from cdc_core.engine.supervisor import Outcome, Supervisor
from cdc_core.errors import CdcError
from cdc_core.locality import Locality
from cdc_core.plugins.classes import needing
from cdc_core.private_files import make_state_directory
from cdc_core.spark.placement_settings import pin
from cdc_core.store.verbs import require_run
from cdc_core.telemetry.status import StatusView, shown_moment


@changefeed_command(environment="ignored")
@click.option(
    "--once", is_flag=True, help="Stop after delivering everything that was committed before this run started."
)
@locality_option
@metrics_option
@otlp_option
@log_format_option
def run(named: Named, once: bool, locality: Locality, metrics: str | None, otlp: bool) -> int:
    """Run the changefeed NAME in the TOML file FILE until Ctrl-C; without NAME, all changefeeds in the file.

    FILE may also be the name of a pipeline that an installed package publishes. With --store, a FILE that is not a path
    is the name of a changefeed that was run before. The run then needs the changefeed's plugins, and what its
    definition refers to, such as ${PASSWORD}, but no file.

    The first run delivers the existing rows of the tables, then every change. A later run continues where the last one
    stopped, even if it crashed. Ctrl-C waits for the running step; a second Ctrl-C abandons it, and the next run
    repeats it. Changefeeds that run side by side share one Spark session. When one of them fails, the others continue.
    """
    session, found = named.session, [each.located() for each in named.each()]
    _, state_dir, url, _ = found[0]
    session.start_logging()
    feeds = []
    for changefeed, _, _, definition in found:
        feeds.append(pin(resolved(session, changefeed), locality))
        if changes := changed_plugins(definition, feeds[-1].stored):
            log.warning("changefeed '%s' runs with different plugin versions than before: %s", feeds[-1].name, changes)
    session.mask_uri(url)
    with progress_at(url) as progress:  # before anything is started for them
        for feed in feeds:
            require_run(None if progress is None else progress.jobs.find(feed.name))
    with needing(*SPARK, otherwise=NEEDS_SPARK):
        from cdc_core.spark.runner import Runner
    make_state_directory(state_dir)
    by_name = {feed.name: feed for feed in feeds}
    running = frozenset(by_name)
    with (
        serving_metrics(metrics, url, names=running),
        exporting_metrics(session, otlp, url, names=running),
        Runner(
            state_dir,
            store=url,
            name=feeds[0].name if len(feeds) == 1 else Path(named.file or "").stem,
            spark=feeds[0].spark,
            changefeeds=len(feeds),
            locality=locality,
        ) as runner,
        HistoryMeter(url, lambda report: by_name.get(report.known.name)),
        session.status_view() as view,
    ):
        supervisors = []
        for feed in feeds:
            command = f"cdc resume {named.words(named.name if len(feeds) == 1 else feed.name)}"
            supervisors.append(runner.add(feed, once=once, resume_command=session.masked(command)))
        return supervise(supervisors, view, debug=session.debug)


log = logging.getLogger(__name__)

SPARK, NEEDS_SPARK = ("pyspark", "py4j"), "running a changefeed needs Spark: pip install 'cdc-core[spark]'"
_POLL_INTERVAL_S = 0.1
_STOPPED = ("stopped", "abandoned", "given up")
_EXIT_STATUS = {"complete": 0, "stopped": 0, "given up": 1, "abandoned": 130}


def supervise(supervisors: Sequence[Supervisor], view: StatusView, *, debug: bool = False) -> int:
    """Start the runs, show their statuses until all have ended, and return the exit status: the greatest of them.

    STOP_SIGNALS stop all runs; a second one abandons their running steps. Main thread only. Raises: the error
    of a changefeed that runs alone. One among several is logged when it fails, with a traceback if *debug*, and the
    others continue.
    """
    running = list(supervisors)
    obeyed, told = 0, queue.SimpleQueue[None]()
    with stop_signals(lambda: told.put(None)):
        for supervisor in supervisors:
            supervisor.start()
        while running:
            running[0].wait(_POLL_INTERVAL_S)
            while obeyed < told.qsize():
                for supervisor in running:
                    supervisor.abandon() if obeyed else supervisor.stop()
                obeyed += 1
            ended = [supervisor for supervisor in running if supervisor.outcome is not None]
            for supervisor in running:
                view(supervisor.status)
            for supervisor in ended:
                running.remove(supervisor)
                _tell_place(supervisor)
                if len(supervisors) > 1:
                    _tell(supervisor, debug=debug)
    outcomes = [outcome for supervisor in supervisors if (outcome := supervisor.outcome) is not None]
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    return max(map(_exit_status, outcomes))


def _tell(supervisor: Supervisor, *, debug: bool) -> None:
    """Log why a changefeed ended that is not the only one."""
    name, outcome = supervisor.feed.name, supervisor.outcome
    if outcome is None or outcome.error is None:
        return
    error = outcome.error
    text = str(error) if isinstance(error, CdcError) else f"internal error: {type(error).__name__}: {error}"
    log.error("changefeed '%s' failed: %s", name, text, exc_info=error if debug else None, extra={"changefeed": name})


def _tell_place(supervisor: Supervisor) -> None:
    """Log where the next run of a changefeed that was stopped begins."""
    name, status, outcome = supervisor.feed.name, supervisor.status, supervisor.outcome
    if outcome is None or outcome.kind not in _STOPPED:
        return
    if status.high_water:
        moment = shown_moment(status.high_water.to_datetime())
        place = f"continues after {moment} ({status.high_water})"
    elif status.scan is not None:
        place = f"continues the scan at {status.scan.done:,} of {status.scan.total:,} {status.scan.unit}"
    else:
        place = "starts where this one started"
    again = "" if outcome.kind == "stopped" else ", and repeats what was delivered later"
    log.info("changefeed '%s': the next run %s%s", name, place, again, extra={"changefeed": name})


def _exit_status(outcome: Outcome) -> int:
    if outcome.kind != "failed":
        return _EXIT_STATUS[outcome.kind]
    return outcome.error.exit_status if isinstance(outcome.error, CdcError) else 1
