"""An error of the preflight that another changefeed of the same session may have caused does not end the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.engine.query_host import QueryHostError
from cdc_core.engine.supervisor import Supervisor
from cdc_core.errors import ConfigError
from cdc_core.store.progress import ProgressStore, store_url

JVM = QueryHostError("Spark's JVM ended")
NO_EXECUTOR = QueryHostError("no executor started within 2s", outage=True)
REFUSED = ConfigError("executor 3 on host b has no Python")


class Cluster:
    """As much of a QueryHost as the preflight asks for: it fails with *errors*, one after the other."""

    is_local, is_alive = False, True
    log_name, memory_settings = "t.spark.log", ""
    death = None

    def __init__(self, *errors: Exception, is_shared: bool) -> None:
        self.is_shared = is_shared
        self.errors = list(errors)

    def acquire(self, user: str) -> int:
        return 1

    def await_executors(self, wait_s: float, *, stopped: object) -> int:
        return 1

    def check_executors(self, config: object, *, stopped: object) -> None:
        raise self.errors.pop(0)

    def release(self, user: str) -> None:
        pass


@pytest.mark.parametrize(
    ("errors", "is_shared", "ends_with"),
    [([JVM, JVM, REFUSED], True, REFUSED), ([JVM], False, JVM), ([NO_EXECUTOR], True, NO_EXECUTOR)],
)
def test_only_errors_of_its_own_end_the_preflight(
    errors: list[Exception], is_shared: bool, ends_with: Exception, tmp_path: Path
) -> None:
    host: Any = Cluster(*errors, is_shared=is_shared)
    store = ProgressStore(store_url(tmp_path))
    supervisor = Supervisor(counter_feed(tmp_path), store=store, state_dir=tmp_path, host=host)
    supervisor.start()
    outcome = supervisor.wait()
    assert outcome is not None
    assert outcome.error is ends_with
    assert host.errors == []
