"""A run without Spark that sends dead letters to the sink again, fenced against other runs as any run is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.replay import Replay, WaitingRow, send_again
from cdc_core.delivery.routing import Routing, TopicAdmission
from cdc_core.engine.checks import check_sink, prepare_sink
from cdc_core.engine.fencing import EpochCheck, FencedSink, RunLock, await_idle
from cdc_core.engine.start_position import register
from cdc_core.errors import ConfigError
from cdc_core.sink import Flushed, SliceInfo
from cdc_core.store.progress import DeadLetter, ProgressStore


def replay(
    feed: ResolvedChangefeed,
    *,
    store: ProgressStore,
    state_dir: Path,
    find: Callable[[Sequence[DeadLetter]], Sequence[WaitingRow]],
    give_up: Collection[int] = (),
    job_epoch: int | None = None,
) -> tuple[Replay, int]:
    """Send the dead letters of *feed* to its sink again; return the outcome, and how many rows were not found.

    *find* returns the rows of dead letters; it is called when there are rows to send. Rows with the numbers *give_up*
    are not sent, and are no longer dead letters when this returns; when it raises, they still are. Nothing else
    delivers meanwhile: neither another run, nor tasks that a killed run left behind. What was sent is durable at the
    sink before the progress store says so; after a crash in between it is sent once more. *job_epoch* is the newest
    epoch of a job that is paused, None when the changefeed is not a job.

    Raises: ConfigError when the changefeed is running, the sink cannot take rows, or a number of *give_up* is unknown;
    RetryableError; FencedError when a run has begun on another host; whatever the sink raises about anything but rows.
    """
    with RunLock(state_dir / f"{feed.name}.lock") as lock:
        if not lock.acquire():
            raise ConfigError(
                f"changefeed '{feed.name}' is running from {state_dir} (process {lock.holder}); stop it before you send"
                " its dead letters again"
            )
        waiting = store.dead_letters.of(feed.name)
        unknown = min(set(give_up) - {letter.number for letter in waiting}, default=None)
        if unknown is not None:
            raise ConfigError(f"changefeed '{feed.name}' has no dead letter with the number {unknown}; see --list")
        letters = [letter for letter in waiting if letter.number not in give_up]
        rows = find(letters) if letters else ()
        missing = len(letters) - sum(len(row.letters) for row in rows)
        known = register(feed, store, epoch=job_epoch)
        if not rows:
            if give_up:
                epoch = store.changefeeds.begin_attempt(feed.name, after=job_epoch)
                store.dead_letters.mark_replayed(feed.name, epoch, (), discarded=set(give_up))
            return Replay(sent=(), kept=(), flushed=Flushed()), missing
        schemas = list({row.row.schema.name: row.row.schema for row in rows}.values())
        feed = feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch, state=store.url)
        check_sink(feed, schemas)
        prepare_sink(feed, schemas)
        epoch = store.changefeeds.begin_attempt(feed.name, after=job_epoch)
        tables = [schema.name for schema in schemas]
        feed = feed.for_attempt(feed_id=known.feed_id, epoch=epoch, table_names=tables)
        check = EpochCheck(store, name=feed.name, epoch=epoch)
        with _alone(feed, state_dir), closing(Parts(feed).open_sink()) as sink:
            progress = store.progress.load(feed.name)
            assert progress is not None, "dead letters come from steps that were saved"
            # A plan that an earlier attempt left knew of keys that had to wait.
            if not store.planned_steps.was_moved(feed.name):
                store.planned_steps.save_plan(feed.name, epoch, {})
            lower = progress.frontier.high_water.next()
            fenced = FencedSink(sink, check.require_newest)
            admission = TopicAdmission(store, name=feed.name, epoch=epoch, most=feed.options.max_topics)
            result = send_again(
                fenced,
                rows,
                feed=feed,
                routing=Routing(partial(admission.admit, sink=sink, fenced=fenced)),
                slice_=SliceInfo(step=0, index=0, lower=lower, replay=True),
            )
            delivered = result.flushed.delivered
            store.dead_letters.mark_replayed(
                feed.name,
                epoch,
                [letter.number for row in result.sent for letter in row.letters],
                discarded=set(give_up),
                delivered=None if delivered and feed.options.resolved is None else delivered,
            )
        return result, missing


@contextmanager
def _alone(feed: ResolvedChangefeed, state_dir: Path) -> Iterator[None]:
    """Wait until no task of an earlier attempt is at work on this host, and admit none inside the block."""
    run_dir = state_dir / f"{feed.name}.run" / str(feed.epoch)
    shutil.rmtree(run_dir.parent, ignore_errors=True)
    run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_dir.mkdir()
    try:
        await_idle(state_dir / f"{feed.name}.tasks.lock", owner=f"changefeed '{feed.name}'")
        yield
    finally:
        shutil.rmtree(run_dir.parent, ignore_errors=True)
