"""Placement: every span is read once, inside the filter, where the strategy says, from the closest replica."""

import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.placement import STRATEGIES, Place, Replica, ReplicatedSpan, assign_spans, closest_replica
from cdc_core.span import Span
from cdc_core.timestamp import Timestamp

_NODES = "123456"


def _locality(random: Random) -> Locality:
    tiers = ("region", "zone", "rack")[: random.randint(0, 3)]
    return Locality(tuple((tier, random.choice("ab")) for tier in tiers))


def _closed(random: Random) -> Timestamp | None:
    return random.choice([None, Timestamp(random.randint(0, 9))])


def _cluster(random: Random) -> tuple[list[ReplicatedSpan], list[Place]]:
    """Nodes of a source, spans with replicas on some of them, and places: some of these nodes, and others."""
    nodes = {node: _locality(random) for node in random.sample(_NODES, random.randint(1, 6))}
    spans = []
    for number in range(random.choice([0, 1, 2, 5, 10, 20, 30])):
        chosen = random.sample(sorted(nodes), random.randint(1, min(3, len(nodes))))
        spans.append(
            ReplicatedSpan(
                span=Span("t", number.to_bytes(2, "big"), (number + 1).to_bytes(2, "big")),
                replicas=tuple(
                    Replica(node=node, locality=nodes[node], leaseholder=index == 0, closed=_closed(random))
                    for index, node in enumerate(chosen)
                ),
            )
        )
    here = random.sample(sorted(nodes), random.randint(0, len(nodes)))
    others = {name: _locality(random) for name in random.sample("xyz", random.randint(0, 3))}
    places = {name: nodes[name] for name in sorted(here)} | others
    return spans, [Place(name=name, locality=locality) for name, locality in places.items()]


# Drawn from a number each: to draw hundreds of values would take a hundred times as long as what is tested.
_numbers = st.integers(0, 2**32)
_clusters = _numbers.map(lambda number: _cluster(Random(number)))
_localities = _numbers.map(lambda number: _locality(Random(number)))
_times = _numbers.map(lambda number: _closed(Random(number)))
_strategies = st.sampled_from(STRATEGIES)


def _assign(
    spans: Sequence[ReplicatedSpan], places: Sequence[Place], within: Locality, strategy: str, seed: int = 0
) -> dict[str, list[ReplicatedSpan]] | None:
    """Return the assignment; None where no place matches, which must be an error that names what was asked for."""
    if any(place.locality.matches(within) for place in places):
        return assign_spans(spans, places, within=within, strategy=strategy, seed=seed)
    with pytest.raises(ConfigError, match=r"execution_locality: no executor is in") as refused:
        assign_spans(spans, places, within=within, strategy=strategy, seed=seed)
    assert f"'{within}'" in str(refused.value)
    return None


@settings(max_examples=50)
@given(_clusters, _localities, _strategies, st.integers(0, 3))
def test_every_span_is_read_once_and_inside_of_the_filter(cluster, within, strategy, seed) -> None:  # type: ignore[no-untyped-def]
    spans, places = cluster
    shares = _assign(spans, places, within, strategy, seed)
    if shares is None:
        return
    read = [each for share in shares.values() for each in share]
    assert sorted(each.span for each in read) == [each.span for each in spans]
    localities = {place.name: place.locality for place in places}
    assert all(localities[name].matches(within) for name in shares)
    assert shares == assign_spans(spans, places, within=within, strategy=strategy, seed=seed)


@settings(max_examples=50)
@given(_clusters, _localities)
def test_a_leaseholder_reads_its_spans_and_otherwise_a_place_as_near_as_possible(cluster, within) -> None:  # type: ignore[no-untyped-def]
    spans, places = cluster
    matching = {place.name: place.locality for place in places if place.locality.matches(within)}
    for name, share in (_assign(spans, places, within, "leaseholder") or {}).items():
        for holder in (replica for each in share for replica in each.replicas if replica.leaseholder):
            if holder.node in matching:
                assert name == holder.node
            else:
                nearest = max(locality.common(holder.locality) for locality in matching.values())
                assert matching[name].common(holder.locality) == nearest


@settings(max_examples=50)
@given(_clusters, _localities, st.integers(0, 3))
def test_at_random_a_place_with_a_replica_reads_and_otherwise_one_as_near_as_possible(cluster, within, seed) -> None:  # type: ignore[no-untyped-def]
    spans, places = cluster
    matching = {place.name: place.locality for place in places if place.locality.matches(within)}
    for name, share in (_assign(spans, places, within, "random", seed) or {}).items():
        for each in share:
            holders = {replica.node for replica in each.replicas}
            if holders & matching.keys():
                assert name in holders
            else:
                found = [[place.common(one.locality) for one in each.replicas] for place in matching.values()]
                assert max(matching[name].common(one.locality) for one in each.replicas) == max(map(max, found))


@settings(max_examples=50)
@given(_clusters, _localities, st.integers(0, 3))
def test_balanced_shares_are_at_most_five_percent_above_the_average(cluster, within, seed) -> None:  # type: ignore[no-untyped-def]
    spans, places = cluster
    before = _assign(spans, places, within, "random", seed)
    after = _assign(spans, places, within, "balanced_simple", seed)
    if before is None or after is None or not spans:
        return
    readers = [name for name, share in before.items() if share]
    assert {name for name, share in after.items() if share} == set(readers)
    assert max(map(len, after.values())) <= math.ceil(1.05 * len(spans) / len(readers))


def test_balance_moves_spans_away_from_the_only_node_with_replicas_of_most() -> None:
    here, there = Locality.parse("region=eu"), Locality.parse("region=us")
    one = Replica(node="1", locality=here, leaseholder=True)
    two = Replica(node="2", locality=there, leaseholder=True)
    spans = [
        ReplicatedSpan(span=Span("t", bytes([n]), bytes([n + 1])), replicas=(two if n == 9 else one,))
        for n in range(10)
    ]
    places = [Place(name="1", locality=here), Place(name="2", locality=there)]
    shares = {
        strategy: [len(share) for share in assign_spans(spans, places, strategy=strategy).values()]
        for strategy in STRATEGIES
    }
    assert shares == {"leaseholder": [9, 1], "random": [9, 1], "balanced_simple": [6, 4]}


def test_a_random_replica_takes_work_evenly_and_as_the_seed_says() -> None:
    nodes = [Replica(node=str(n), locality=Locality(), leaseholder=n == 1) for n in range(1, 4)]
    spans = [ReplicatedSpan(span=Span("t", bytes([n]), bytes([n + 1])), replicas=tuple(nodes)) for n in range(30)]
    places = [Place(name=node.node, locality=node.locality) for node in nodes]
    drawn = [assign_spans(spans, places, strategy="random", seed=seed) for seed in (1, 2)]
    assert [[len(share) for share in shares.values()] for shares in drawn] == [[10, 10, 10]] * 2
    assert drawn[0] != drawn[1]


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'nearest' is not a strategy; choose one of leaseholder, random"):
        assign_spans([], [], strategy="nearest")


@settings(max_examples=50)
@given(_clusters, _localities, st.sampled_from("123456x"), _times)
def test_the_replica_that_is_read_is_the_closest_that_can_serve(cluster, locality, node, upto) -> None:  # type: ignore[no-untyped-def]
    for each in cluster[0]:
        found = closest_replica(each.replicas, locality, node=node, upto=upto)
        assert found is not None, "a leaseholder can serve everything"
        able = [
            one for one in each.replicas if one.leaseholder or upto is None or one.closed is None or one.closed >= upto
        ]
        assert found in able
        if any(one.node == node for one in able):
            assert found.node == node
        else:
            assert locality.common(found.locality) == max(locality.common(one.locality) for one in able)


def test_no_replica_is_read_that_lags_behind() -> None:
    behind = Replica(node="1", locality=Locality(), closed=Timestamp(4))
    assert closest_replica([behind], Locality(), upto=Timestamp(5)) is None
    assert closest_replica([behind], Locality(), upto=Timestamp(4)) is behind
    assert closest_replica([], Locality()) is None
