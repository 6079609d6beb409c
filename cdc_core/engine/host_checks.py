"""What every executor of a cluster is asked before anything is created at the source or the sink.

On one host it is nothing, and costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.host_requirements import HostRequirements, here, host_requirements, this_executor
from cdc_core.engine.query_host import QueryHost
from cdc_core.errors import CdcError, ConfigError, FencedError, RetryableError, to_wire
from cdc_core.placement import executor_locality
from cdc_core.schema import TableSchema


def required_of_hosts(
    feed: ResolvedChangefeed, host: QueryHost, *, create: bool
) -> AbstractContextManager[HostRequirements]:
    """Return what tasks of *feed* require of the hosts of *host*. As `host_requirements` otherwise."""
    return nullcontext(HostRequirements()) if host.is_local else host_requirements(feed, create=create)


def check_executors(
    feed: ResolvedChangefeed,
    schemas: Sequence[TableSchema],
    host: QueryHost,
    state_dir: Path,
    *,
    stopped: Callable[[], bool],
) -> None:
    """Return when all executors can run tasks of *feed* for tables of *schemas*, or *stopped* becomes true.

    Creates nothing but a probe, which is removed. Raises: ConfigError, which names the host.
    """
    names = [schema.name for schema in schemas]
    feed = feed.for_attempt(feed_id=feed.feed_id, epoch=feed.epoch, table_names=names)
    with required_of_hosts(feed, host, create=False) as requirements:
        run_dir = state_dir / f"{feed.name}.run" / "preflight"
        config = AttemptConfig(feed=feed, state_dir=state_dir, run_dir=run_dir, warm_up=True, requirements=requirements)
        host.check_executors(config, stopped=stopped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an executor says of itself: `problem` is an error for `from_wire`, masked, or empty."""

    executor: str
    host: str
    problem: str = ""


def answer(option: str) -> Answer:
    """Return whether this process can run tasks of the attempt with *option*. On an executor. Changes nothing."""
    executor = this_executor()
    try:
        # First the versions: another version of cdc-core may not even be able to read the rest.
        HostRequirements.from_json(json.loads(option)["requirements"]).require()
        config = AttemptConfig.from_option(option)
        with config.guarded():
            _check(config)
    except (ConfigError, RetryableError) as error:
        return Answer(executor=executor.id, host=executor.host, problem=to_wire(error))
    except MaskedError as error:
        return Answer(executor=executor.id, host=executor.host, problem=str(error))
    return Answer(executor=executor.id, host=executor.host)


def _check(config: AttemptConfig) -> None:
    """Return when the plugins can be loaded and source, sink and progress store be reached. Raises: ConfigError."""
    feed = config.feed
    try:
        config.load()
        if feed.rangefeed.registration.replicas:
            executor_locality()
        with closing(Parts(feed).open_reader()) as reader:
            reader.check()
        for part in (feed, feed.dead_letter):
            if part is not None:
                _check_destination(part)
        with closing(config.open_epoch_check()) as check:
            check.require_newest()
    except FencedError:
        raise
    except CdcError as error:
        repairable = error.repairable or isinstance(error, RetryableError)
        raise ConfigError(f"{here()}, unlike the driver: {error}", repairable=repairable) from error


def _check_destination(feed: ResolvedChangefeed) -> None:
    with closing(Parts(feed).open_destination()) as destination:
        destination.check()
