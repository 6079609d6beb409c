"""What every executor of a cluster is asked before anything is created at the source or the sink."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.executor_identity import this_executor
from cdc_core.engine.host_requirements import HostRequirements, here
from cdc_core.errors import CdcError, ConfigError, FencedError, RetryableError, to_wire
from cdc_core.placement import executor_locality

__all__ = ["Answer", "answer"]


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
        with closing(feed.open_reader()) as reader:
            reader.check()
        for part in (feed, feed.dead_letter):
            if part is not None:
                _check_destination(part)
        with closing(config.open_epoch_check()) as check:
            check.require_newest()
    except FencedError:
        raise
    except CdcError as error:
        raise ConfigError(f"{here()}, unlike the driver: {error}", repairable=error.repairable) from error


def _check_destination(feed: ResolvedChangefeed) -> None:
    with closing(feed.open_destination()) as destination:
        destination.check()
