"""One changefeed that another thread starts and waits for."""

from __future__ import annotations

import threading
from pathlib import Path

from cdc_testing.components import encoder, host, rangefeed, sink

from cdc_core import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.engine.supervisor import Supervisor
from cdc_core.spark.host import SparkHost
from cdc_core.store.progress import ProgressStore, store_url


class SlowlyClosed(ProgressStore):
    """A store that closes when it may."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.closing, self.may_close = threading.Event(), threading.Event()

    def close(self) -> None:
        if threading.current_thread().name == "changefeed orders":
            self.closing.set()
            self.may_close.wait()
        super().close()


def test_who_sees_the_outcome_has_the_store_for_himself(tmp_path: Path) -> None:
    plugins = host(rangefeed(), encoder(), sink(destination="cdc_testing.components:SilentDestination"))
    changefeed = Changefeed(name="orders", source="paper://desk/shop", tables=("orders",), sink="shelf://room")
    store = SlowlyClosed(store_url(tmp_path))
    spark = SparkHost("orders", {}, state_dir=tmp_path)
    supervisor = Supervisor(resolve(changefeed, plugins), store=store, state_dir=tmp_path, host=spark)
    (tmp_path / "orders.lock").mkdir()  # fails the run at once
    supervisor.start()
    store.closing.wait()
    assert supervisor.outcome is None
    store.may_close.set()
    assert supervisor.wait() is not None
    store.close()
