"""`cdc create`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from shlex import join

import click
from click.core import ParameterSource

from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import (
    adoption_text,
    echo_job,
    job_store,
    job_store_option,
    json_option,
    require_owner,
    user_name,
)
from cdc_core.cli.run import find_changefeed, names_in, progress_at, resolved, state_of
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.cli.stopped import stopped
from cdc_core.cli.stored import require_known
from cdc_core.config.definition import require_references
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.fencing import is_idle
from cdc_core.engine.finish import all_delivered
from cdc_core.errors import ConfigError, RetryableError
from cdc_core.jobs.creation import check_new_job, locality_of
from cdc_core.masking import masked_uri, secret_forms, uri_secrets
from cdc_core.store.handover import Kept
from cdc_core.store.job_values import REVERTED, JobRecord
from cdc_core.store.opening import store_place
from cdc_core.store.progress import ProgressStore

__all__ = ["create", "create_job"]


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--owner", metavar="USER", help="Whose job it is. Default: the user of this process.")
@click.option("--no-check", is_flag=True, help="Do not connect to the source and the sink.")
@click.option(
    "--from-state",
    metavar="[DIR|URL]",
    is_flag=False,
    flag_value="",
    help="Continue where `cdc run` stopped: move its progress from this store, by default .cdc beside FILE. Put it"
    " last.",
)
@job_store_option
@json_option
@debug_option
@click.pass_obj
def create(
    session: CliSession,
    file: str,
    name: str | None,
    owner: str | None,
    no_check: bool,
    from_state: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Make the changefeed NAME in FILE a job, which a node runs from now on; without NAME, all changefeeds of the file.

    FILE may also be the name of a pipeline that an installed package publishes. The store keeps the definition, with
    references such as ${PASSWORD} in place of secrets; each node resolves them from its own environment and files. A
    changefeed that `cdc run` has run with this store continues where it stopped, and with --from-state also one that it
    has run with another store. Stop that run first.
    """
    found = [find_changefeed(file, each) for each in names_in(file, name, None)]
    feeds = [resolved(session, changefeed) for changefeed, _ in found]
    owner = require_owner(user_name() if owner is None else owner)
    for feed in feeds:
        require_references(feed.stored, feed.name)
    run, url = state_of(found[0][1], from_state or None)
    session.add_secrets(secret_forms(uri_secrets(url)))
    is_given = click.get_current_context().get_parameter_source("store") is ParameterSource.COMMANDLINE
    options = ["--store", masked_uri(store)] if store and is_given else []
    options.append(f"--from-state={masked_uri(from_state)}" if from_state else "--from-state")
    again = {feed.name: join(["cdc", "create", file, feed.name, *options]) for feed in feeds}
    with job_store(session, store, create=True) as opened, progress_at(url) as left:
        if from_state is not None and left is None:
            raise ConfigError(
                f"there is no progress store of a run in {ProgressStore(url).shown}; name its store with --from-state"
                " DIR|URL"
            )
        is_same = store_place(url) == store_place(opened.url)
        giver = None if is_same or from_state is None else left
        continued: dict[str, JobRecord] = {}
        for feed in feeds:
            if giver is not None and (job := _continuing_job(opened, feed.name, giver)) is not None:
                continued[feed.name] = job
                continue
            if left is not None and from_state is not None:
                _require_begun(feed, left)
            elif left is not None and not is_same:
                _require_not_run(feed, opened, left, move=again[feed.name], drop=join(["cdc", "drop", file, feed.name]))
            check_new_job(opened, feed, connect=not no_check, left=giver)
        for feed in feeds:
            if feed.name in continued:
                job, text = continued[feed.name], f"job '{feed.name}' has the progress of its run already"
            elif giver is None:
                job, text = create_job(opened, feed, owner=owner)
            else:
                job, text = _continued_job(opened, feed, giver, run, again=again[feed.name], owner=owner)
            echo_job(session, opened, job, text, as_json=as_json)
            if giver is not None:
                giver.handover.arrive(feed.name)
    return 0


def _continuing_job(store: ProgressStore, name: str, left: ProgressStore) -> JobRecord | None:
    """Return the job of *store* that has the progress of the run in *left*; None when there is none."""
    job, given = store.jobs.find(name), left.jobs.find(name)
    if job is None or job.has_left or given is None or not given.has_left:
        return None
    there, here = store.changefeeds.find(name), left.changefeeds.find(name)
    return job if there is not None and here is not None and there.feed_id == here.feed_id else None


def _require_not_run(
    feed: ResolvedChangefeed, store: ProgressStore, left: ProgressStore, *, move: str, drop: str
) -> None:
    """Return when the changefeed has not begun with the store *left* of its runs. Raises: ConfigError.

    Its remedies are the commands *move*, where that can be done, and *drop*.
    """
    job, progress = left.jobs.find(feed.name), left.progress.load(feed.name)
    if progress is None or (job is not None and job.state in REVERTED and not job.is_leaving):
        return
    if job is not None:
        raise ConfigError(left.handover.is_job(job))
    remedy = f"run `{drop}` to start again"
    if not all_delivered(feed, progress):
        remedy = f"run `{move}` to move it, or `{drop}` to start again"
    raise ConfigError(
        f"changefeed '{feed.name}' has progress in {left.shown}, which a job in {store.shown} would not continue;"
        f" {remedy}"
    )


def _require_begun(feed: ResolvedChangefeed, left: ProgressStore) -> None:
    """Return when *left* has progress that a job can continue. Raises: ConfigError."""
    require_known(left, feed.name, option="--from-state")
    progress = left.progress.load(feed.name)
    if progress is None:
        raise ConfigError(f"changefeed '{feed.name}' has not begun in {left.shown}; leave out --from-state")
    if all_delivered(feed, progress):
        raise ConfigError(f"changefeed '{feed.name}' is complete in {left.shown}: nothing is left to deliver")


def _continued_job(
    store: ProgressStore, feed: ResolvedChangefeed, left: ProgressStore, run: Path, *, again: str, owner: str
) -> tuple[JobRecord, str]:
    """Make the changefeed a job that continues what *left* has of its runs, in directory *run*, as `create_job`.

    From then on no run continues it there; the command *again* repeats this. Raises: ConfigError, which leaves it as
    it is, such as while a run is alive.
    """
    to = f"job '{feed.name}' of the store {store_place(store.url)}"
    over = left.jobs.find(feed.name) is not None  # a repetition: no run begins there
    with nullcontext() if over else stopped(left, feed.name, run):
        if not over and not is_idle(run / f"{feed.name}.tasks.lock"):
            raise ConfigError(f"tasks of the last run of changefeed '{feed.name}' are still alive; wait until they end")
        kept = left.handover.give(feed.name, to=to, again=again, owner=owner, repeated=over)
        try:
            return create_job(store, feed, owner=owner, kept=kept)
        except ConfigError:
            if _continuing_job(store, feed.name, left) is None:
                left.handover.take_back(feed.name)
            raise
        except RetryableError as error:
            text = f"repeat this command: until then nothing continues changefeed '{feed.name}'"
            raise RetryableError(f"{error}; {text}") from error


def create_job(
    store: ProgressStore, feed: ResolvedChangefeed, *, owner: str, kept: Kept | None = None
) -> tuple[JobRecord, str]:
    """Make the changefeed a job; return it, and what was done as text. Raises: ConfigError, as the store does."""
    job = store.jobs.create(feed.name, feed.definition(), owner=owner, locality=locality_of(feed), kept=kept)
    return job, f"job '{job.name}' is created, its owner is {owner}; {adoption_text(store, job)}"
