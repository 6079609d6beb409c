"""Which place reads which span of a source that keeps replicas, and from which replica a place reads."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.span import Span
from cdc_core.timestamp import Timestamp

VARIABLE = "CDC_LOCALITY"
"""The environment variable that says where this process is."""

Strategy = Literal["leaseholder", "random", "balanced_simple"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
_SENSITIVITY = 0.05
"""By which part of the average the largest share may exceed it under `balanced_simple`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A copy of a span on a node of the source.

    A replica that is not the leaseholder can serve rows up to `closed`, or all rows if that is None.
    """

    node: str
    locality: Locality
    leaseholder: bool = False
    closed: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedSpan:
    """A span and its replicas, at least one."""

    span: Span
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node that can read spans. If its name is that of a replica's node, it is that node."""

    name: str
    locality: Locality


def assign_spans(
    spans: Sequence[ReplicatedSpan],
    places: Sequence[Place],
    *,
    strategy: Strategy = "leaseholder",
    within: Locality = Locality(),
    seed: int = 0,
) -> dict[str, list[ReplicatedSpan]]:
    """Return the spans of each place that matches *within*, by name; the same for the same arguments.

    Every span is in one list. The strategies, which are those of CockroachDB:

    - `leaseholder`: the leaseholder's place, if it matches; otherwise the matching place with the most leading tiers in
      common with the leaseholder.
    - `random`: a matching place that has a replica, at random but evenly; otherwise the matching place with the most
      leading tiers in common with any replica.
    - `balanced_simple`: as `random`; then the largest shares give spans to the smallest until none has more than
      1.05 times the average, rounded up. Only places that had a span before get more.

    Among places that are equally good, the one with the fewest spans is taken, so that shares are even. Raises:
    ConfigError if no place matches *within*; ValueError for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"'{strategy}' is not a strategy; choose one of {', '.join(STRATEGIES)}")
    matching = [place for place in places if place.locality.matches(within)]
    if not matching:
        there = "; ".join(sorted({str(place.locality) or "(no locality)" for place in places})) or "none"
        raise ConfigError(
            f"execution_locality: no executor is in '{within}'; their localities are: {there}. Use the tiers of one of"
            " these localities"
        )
    candidates = _Candidates(matching)
    dice = random.Random(seed)
    shares: dict[str, list[ReplicatedSpan]] = {place.name: [] for place in matching}
    for each in spans:
        wanted = [replica for replica in each.replicas if replica.leaseholder] if strategy == "leaseholder" else ()
        names = candidates.for_any(wanted or each.replicas)
        fewest = min(len(shares[name]) for name in names)
        shares[dice.choice([name for name in names if len(shares[name]) == fewest])].append(each)
    if strategy == "balanced_simple":
        _balance(shares)
    return shares


def closest_replica(
    replicas: Iterable[Replica], locality: Locality, *, node: str = "", upto: Timestamp | None = None
) -> Replica | None:
    """Return the replica from which a reader at *locality*, on *node* if it is one, reads rows up to *upto*.

    This is the one on the node itself, or else the one with the most leading tiers in common, however few; among
    equals, it is the leaseholder. A replica that has not closed *upto* cannot serve it unless it is the leaseholder.
    Returns None if no replica can.
    """
    able = [
        replica
        for replica in replicas
        if replica.leaseholder or upto is None or replica.closed is None or replica.closed >= upto
    ]

    def closeness(replica: Replica) -> tuple[bool, int, bool]:
        return replica.node == node, locality.common(replica.locality), replica.leaseholder

    return max(able, key=closeness, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """The user's choices for a source that keeps replicas. Picklable."""

    strategy: Strategy = "leaseholder"
    within: Locality = field(default_factory=Locality)
    """The changefeed's `execution_locality`."""

    def assign(
        self, spans: Sequence[ReplicatedSpan], nodes: Sequence[Place], *, seed: int = 0
    ) -> dict[str, list[ReplicatedSpan]]:
        """Return the node on which each span is read, as `assign_spans` does. *nodes* are the source's running nodes.

        If no node matches `within`, any node may be chosen: the executors match `within`, and read from farther away.
        """
        matched = any(node.locality.matches(self.within) for node in nodes)
        within = self.within if matched else Locality()
        return assign_spans(spans, nodes, strategy=self.strategy, within=within, seed=seed)


def executor_locality() -> Locality:
    """Return the locality of this process from the environment variable CDC_LOCALITY; without tiers if it is not set.

    Raises: ConfigError for what is not a locality.
    """
    try:
        return Locality.parse(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        raise ConfigError(f"environment variable {VARIABLE}: {error}") from None


class _Candidates:
    """The places that may take a span, worked out once for each node and each locality."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._names = {place.name for place in places}
        self._nearest: dict[Locality, tuple[int, list[str]]] = {}

    def for_any(self, replicas: Iterable[Replica]) -> list[str]:
        """Return the names of the places of *replicas*; without any, of those nearest to one of them."""
        found = list(replicas)
        own = [replica.node for replica in found if replica.node in self._names]
        if own:
            return own
        near = [self._near(replica.locality) for replica in found]
        most = max(tiers for tiers, _ in near)
        return list(dict.fromkeys(name for tiers, names in near if tiers == most for name in names))

    def _near(self, locality: Locality) -> tuple[int, list[str]]:
        if locality not in self._nearest:
            common = [place.locality.common(locality) for place in self._places]
            most = max(common)
            names = [place.name for place, tiers in zip(self._places, common, strict=True) if tiers == most]
            self._nearest[locality] = most, names
        return self._nearest[locality]


def _balance(shares: Mapping[str, list[ReplicatedSpan]]) -> None:
    """Move spans from the largest share to the smallest until no share is above the target."""
    taking = [share for share in shares.values() if share]
    if not taking:
        return
    target = math.ceil((1 + _SENSITIVITY) * sum(map(len, taking)) / len(taking))
    while len(largest := max(taking, key=len)) > target:
        min(taking, key=len).append(largest.pop())
