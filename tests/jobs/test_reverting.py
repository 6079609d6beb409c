"""A job drops what it holds at its source, and a source that fails neither holds a job up nor shows its secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed, eventually
from cdc_testing.scripted import CounterRangefeed
from cdc_testing.stored import DEFINITION

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.reverting import Reverting
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore


class _Counting(Definitions):
    """Every job counts, in a directory that the test knows."""

    feed: ResolvedChangefeed

    def resolve(self, name: str) -> ResolvedChangefeed:
        return self.feed


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_whatever_a_source_raises_ends_it_without_secrets(
    kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(*_: Any) -> None:
        raise kind("cannot log in with s3cr3t")

    monkeypatch.setattr(CounterRangefeed, "drop", drop)
    store = ProgressStore(store_url(tmp_path))
    store.create_job("t", DEFINITION, owner="ann", locality=Locality())
    settings = NodeSettings(store=store.url, name="one", directory=str(tmp_path))
    definitions = _Counting(store, PluginHost.load(), settings, keep_secret=lambda _: None)
    definitions.feed = counter_feed(tmp_path, plain_secrets=frozenset({"s3cr3t"}))
    reverting = Reverting("t", definitions)
    reverting.start()
    eventually(lambda: reverting.ended, what="the end")
    assert (reverting.ended, reverting.reason) == ("not reverted", f"{kind.__name__}: cannot log in with ***")
    store.close()
