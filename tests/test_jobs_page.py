"""The commands of docs/jobs.md and docs/nodes.md print what they show."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cdc_testing.imports import ROOT
from cdc_testing.stored import DEFINITION, node

from cdc_core import Frontier, Span, Timestamp
from cdc_core.changefeeds import altering, creating
from cdc_core.cli.main import main
from cdc_core.locality import Locality
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.node_reports import node_reports
from cdc_core.store.progress import Progress, ProgressStore, store_url
from cdc_core.store.reports import reports

JOBS, STATES, NODES = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("jobs", "job-states", "nodes"))


def adopt(store: ProgressStore, eu: NodeRecord) -> None:
    """Do what a node does that runs the job and delivers something."""
    adopted = store.claims.adopt("orders", eu)
    assert adopted is not None
    span = Span("shop.public.orders")
    frontier = Frontier([span])
    frontier.forward(span, Timestamp(time.time_ns()))
    counters = {"steps": 1, "rows": 10, "messages": 10, "bytes": 100_000}
    store.progress.save("orders", adopted.epoch, Progress(token={}, frontier=frontier, counters=counters))
    store.statuses.save("orders", adopted.epoch, {"phase": "running", "host": "host-1", "pid": 4711})


def settle(store: ProgressStore, eu: NodeRecord) -> None:
    store.claims.settle("orders", eu, "stopped")


def revert(store: ProgressStore, eu: NodeRecord) -> None:
    assert store.claims.adopt("orders", eu) is not None
    store.claims.settle("orders", eu, "stopped")
    store.claims.settle("orders", eu, "reverted")


NODE_DOES: dict[str, Callable[[ProgressStore, NodeRecord], None]] = {"create": adopt, "pause": settle, "cancel": revert}
"""What the node does after a command."""


def test_the_commands_of_the_pages_print_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [toml] = re.findall(r"```toml\n(.*?)```", JOBS, re.DOTALL)
    (tmp_path / "shop.toml").write_text(toml)
    monkeypatch.chdir(tmp_path)
    for name, value in {"CDC_STORE": "store", "PASSWORD": "hunter2", "LOGNAME": "ann"}.items():
        monkeypatch.setenv(name, value)
    for module in (altering, creating):  # there is no database
        monkeypatch.setattr(module, "check_job", lambda _feed, **_options: None)
    store = ProgressStore(store_url(tmp_path / "store"))
    first = replace(node("eu-1", "region=eu-west-1"), host="host-1", pid=4711, version="0.1.0")
    eu = store.nodes.join(first, lease_s=86_400)
    sections = re.findall(r"^\$ cdc ([^\n]*)\n((?:(?!```|\$ ).*\n)*)", JOBS + NODES, re.MULTILINE)
    order = ("create", "jobs", "show", "pause", "alter", "resume", "owner", "nodes", "drain", "cancel", "drop")
    found = {shlex.split(command)[0]: (command, printed) for command, printed in sections if printed}
    assert sorted(found) == sorted(order)
    for name in order:
        command, printed = found[name]
        if name == "nodes":
            adopt(store, eu)
        if name == "cancel":  # another node takes over
            eu = store.nodes.join(node("eu-2", "region=eu-west-1"), lease_s=86_400)
            store.nodes.leave(next(each.node_id for each in store.nodes.living() if each.name == "eu-1"))
        assert main(shlex.split(command)) == 0, capsys.readouterr().err
        assert comparable(capsys.readouterr().out) == comparable(printed)
        if name in NODE_DOES:
            NODE_DOES[name](store, eu)
    store.close()


def comparable(text: str) -> str:
    """Return what a command prints without what differs from one time and place to another."""
    text = re.sub(r"\S*/progress\.sqlite", "STORE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d{19}\.\d{10}", "MARK", text)
    return re.sub(r" +", " ", re.sub(r"\d+\.\d s\b", "LAG", text))


@pytest.mark.parametrize(
    ("page", "last"), [(STATES, "epoch"), (NODES, "problems")], ids=["cdc jobs --json", "cdc nodes --json"]
)
def test_the_fields_of_the_pages_are_those_of_json(page: str, last: str, tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path))
    store.nodes.join(node("one"), lease_s=600)
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    [job] = reports(store)
    known = job.job_json() if last == "epoch" else node_reports(store)[0].to_json()
    table = page.partition("\n## Fields of ")[2]
    documented = [name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cell.split(", ")]
    assert documented == [f"`{name}`" for name in known]
    assert documented[-1] == f"`{last}`"
    store.close()
