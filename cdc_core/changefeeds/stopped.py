"""What may only be done while no run of a changefeed is alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cdc_core.engine.fencing import RunLock
from cdc_core.errors import ConfigError
from cdc_core.private_files import make_state_directory
from cdc_core.store.liveness import is_alive
from cdc_core.store.progress import ProgressStore
from cdc_core.store.verbs import require

__all__ = ["stopped"]


@contextmanager
def stopped(store: ProgressStore, name: str, state_dir: Path) -> Iterator[None]:
    """Let no run of changefeed *name* begin from *state_dir* during the block. A job rests.

    Raises: ConfigError when one is alive there, or has been heard from on another host within half a minute; when the
    job is in another state.
    """
    job = store.jobs.find(name)
    if job is not None:
        require(job, "move")
    make_state_directory(state_dir)
    with RunLock(state_dir / f"{name}.lock") as lock:
        if not lock.acquire():
            raise ConfigError(f"changefeed '{name}' is running from {state_dir} (process {lock.holder}); stop it first")
        status = (
            None if job is not None else store.statuses.load(name)
        )  # of a job, the store knows whether a node runs it
        if status is not None and is_alive(status, now=datetime.now(UTC)):
            raise ConfigError(
                f"changefeed '{name}' is running on {status.values.get('host')} (process {status.values.get('pid')});"
                " stop it first, or wait half a minute if it was killed"
            )
        yield
