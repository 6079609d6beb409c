"""A node that runs jobs of some owners says of others that it does not, so that they are not offered to it."""

from __future__ import annotations

from pathlib import Path

from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.settings import NodeSettings
from cdc_core.plugins.host import PluginHost
from cdc_core.store.job_values import JobRecord
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore


def test_a_job_of_another_owner_is_a_problem_of_the_node(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path))
    settings = NodeSettings(store=store.url, name="one", directory=str(tmp_path), owners=("ann", "bob"))
    definitions = Definitions(store, PluginHost.load(), settings, keep_secret=lambda _: None)
    orders = JobRecord(name="orders", state="running", owner="eve", created=0.0)
    assert definitions.why_not(orders) == "it runs only jobs of ann, bob"
    assert definitions.problems() == {"orders": "it runs only jobs of ann, bob"}
    store.close()
