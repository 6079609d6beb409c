"""Our server is asked what a worker of Apache Kafka Connect is asked, and answers the same but for what is told."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cdc_testing.connect_requests import conversation
from cdc_testing.connect_sides import ConnectWorker, Original, differences, ours
from cdc_testing.imports import ROOT
from cdc_testing.kafka_fixtures import Kafka

Answers = Mapping[str, Mapping[str, str]]


@pytest.mark.slow
def test_the_answers_are_those_of_kafka_connect_but_for_the_differences_that_are_told(
    kafka_broker: Kafka, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    told = importlib.import_module("connect_differences").DIFFERENCES
    with ours(tmp_path) as server:
        here = conversation(server)
    with ConnectWorker(kafka_broker.bootstrap_servers, topic_prefix) as worker:
        theirs = conversation(Original(worker, f"{topic_prefix}lines", tmp_path))
    assert here.keys() == theirs.keys()
    found = {(name, *each) for name in here for each in differences(theirs[name], here[name])}
    listed = {one for each in told for one in listed_of(each, theirs, here)}
    assert found - listed == set(), "not in docs/connect_differences.py"
    assert listed - found == set(), "only in docs/connect_differences.py"
    assert [each.shown for each in told if not listed_of(each, theirs, here)] == []


def test_a_worker_that_shares_out_its_connectors_without_an_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = httpx2.MockTransport(lambda _: httpx2.Response(409, text="a rebalance is expected"))
    monkeypatch.setattr(httpx2, "Client", partial(httpx2.Client, transport=busy))
    monkeypatch.setattr("cdc_testing.connect_requests._LIMIT_S", 0.15)
    with ours(tmp_path) as server, pytest.raises(AssertionError, match="`GET /`: the worker still shares out"):
        conversation(server)


def listed_of(told: Any, theirs: Answers, here: Answers) -> set[tuple[str, str, str, str]]:
    """Return what differs by *told*, in the requests whose answers have its place."""
    found = set()
    for name in here:
        if not any(fnmatchcase(name, _literal(pattern)) for pattern in told.requests):
            continue
        same = theirs[name]["status"] == here[name]["status"]
        for place in theirs[name].keys() | here[name].keys() if same else ["status"]:
            if fnmatchcase(place, told.place):
                there, ours_ = theirs[name].get(place, "none"), here[name].get(place, "none")
                found.add(
                    (
                        name,
                        place,
                        there if told.theirs == "any" else told.theirs,
                        ours_ if told.here == "any" else told.here,
                    )
                )
    return found


def _literal(pattern: str) -> str:
    """Return *pattern* with question marks that stand for themselves."""
    return pattern.replace("?", "[?]")
