"""What a run has to do with the executors of a cluster. On one host it is nothing, and costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.host_requirements import HostRequirements, host_requirements
from cdc_core.engine.query_host import QueryHost
from cdc_core.schema import TableSchema

__all__ = ["check_executors", "required_of_hosts"]


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
