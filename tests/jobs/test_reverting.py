"""A job drops what it holds at its source, and a source that fails neither holds a job up nor shows its secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.runs import eventually
from cdc_testing.scripted import CounterRangefeed
from cdc_testing.stored import DEFINITION, die, node

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.jobs.cluster import Cluster
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.running_job import Reverting
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore


class _Counting(Definitions):
    """Every job counts, in a directory that the test knows."""

    feed: ResolvedChangefeed

    def resolve(self, name: str, *, to_run: bool = True) -> ResolvedChangefeed:
        return self.feed


def _counting(store: ProgressStore, directory: Path) -> _Counting:
    settings = NodeSettings(store=store.url, name="one", directory=str(directory))
    definitions = _Counting(store, PluginHost.load(), settings, Cluster(settings), keep_secret=lambda _: None)
    definitions.feed = counter_feed(directory, plain_secrets=frozenset({"s3cr3t"}))
    return definitions


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_whatever_a_source_raises_ends_it_without_secrets(
    kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(*_: Any) -> None:
        raise kind("cannot log in with s3cr3t")

    monkeypatch.setattr(CounterRangefeed, "drop", drop)
    store = ProgressStore(store_url(tmp_path))
    store.jobs.create("t", DEFINITION, owner="ann", locality=Locality())
    definitions = _counting(store, tmp_path)
    one = store.nodes.join(node("one"), lease_s=60)
    adopted = store.claims.adopt("t", one)
    assert adopted is not None
    store.progress.save_intent("t", adopted.epoch, {"slot": "s"})
    reverting = Reverting("t", definitions, node_id=one.node_id)
    reverting.start()
    eventually("the end", lambda: reverting.ended)
    assert (reverting.ended, reverting.reason) == ("not reverted", f"{kind.__name__}: cannot log in with ***")
    store.close()


def test_a_job_that_has_created_nothing_needs_no_source_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CounterRangefeed, "drop", lambda *_: pytest.fail("there is nothing to drop"))
    store = ProgressStore(store_url(tmp_path))
    store.jobs.create("t", DEFINITION, owner="ann", locality=Locality())
    one = store.nodes.join(node("one"), lease_s=60)
    store.claims.adopt("t", one)
    reverting = Reverting("t", _counting(store, tmp_path), node_id=one.node_id)
    reverting.start()
    eventually("the end", lambda: reverting.ended)
    assert reverting.ended == "reverted"
    store.close()


def test_a_node_that_was_overtaken_drops_nothing_of_a_new_job_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(CounterRangefeed, "drop", lambda feed, _: dropped.append(feed.context.feed_id))
    store = ProgressStore(store_url(tmp_path))
    definitions = _counting(store, tmp_path)
    ended = []
    for name in ("one", "two"):
        session = store.nodes.join(node(name), lease_s=60)
        store.jobs.create("t", DEFINITION, owner="ann", locality=Locality())
        adopted = store.claims.adopt("t", session)
        assert adopted is not None
        store.progress.save_intent("t", adopted.epoch, {"slot": "s"})
        if name == "one":
            late = Reverting("t", definitions, node_id=session.node_id)
            store.claims.settle("t", session, "succeeded")  # as the node would that has taken over
            die(store, session)
            continue
        for reverting in (late, Reverting("t", definitions, node_id=session.node_id)):
            reverting.start()
            ended.append(eventually("the end", lambda: reverting.ended))  # noqa: B023
    known = store.changefeeds.find("t")
    assert known is not None
    assert (ended, dropped) == (["stopped", "reverted"], [known.feed_id])
    store.close()
