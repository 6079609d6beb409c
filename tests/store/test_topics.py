"""Topics that a query gave to rows: kept under the epoch, bounded, and forgotten with the changefeed."""

from __future__ import annotations

import pytest
from cdc_testing.stored import DEFINITION, dropped

from cdc_core.errors import FencedError, TerminalError
from cdc_core.store.progress import ProgressStore


def test_topics_are_kept_once_each_in_the_order_in_which_they_were_met(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    assert store.topics.of("orders") == []
    assert store.topics.add("orders", epoch, "b", most=2) == ["b"]
    assert store.topics.add("orders", epoch, "a", most=2) == ["b", "a"]
    assert store.topics.add("orders", epoch, "b", most=2) == ["b", "a"]
    assert store.topics.of("orders") == ["b", "a"]


def test_more_topics_than_allowed_end_the_changefeed_with_the_option(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.topics.add("orders", epoch, "a", most=1)
    with pytest.raises(TerminalError) as raised:
        store.topics.add("orders", epoch, "b", most=1)
    assert str(raised.value) == (
        "changefeed 'orders': its query names a new topic 'b', but the changefeed already has 1 topics, the maximum"
        " that max_topics allows; raise max_topics, or let cdc_topic have fewer values"
    )
    assert store.topics.of("orders") == ["a"]


def test_an_attempt_that_was_overtaken_adds_no_topic(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    old = store.changefeeds.begin_attempt("orders")
    store.changefeeds.begin_attempt("orders")
    with pytest.raises(FencedError):
        store.topics.add("orders", old, "a", most=9)
    assert store.topics.of("orders") == []


def test_the_topics_of_a_changefeed_are_forgotten_with_it(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.topics.add("orders", store.changefeeds.begin_attempt("orders"), "a", most=9)
    dropped(store, "orders")
    assert store.topics.of("orders") == []
