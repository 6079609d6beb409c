"""Where a node, an executor or a replica is: ordered tiers such as `region=eu-west-1,zone=a`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
"""Of a tier and of its value: what is also a label's name and value in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Locality:
    """Tiers from the outermost to the innermost, as pairs of name and value. Without tiers, the place is unknown.

    As a filter (`execution_locality`), it matches a place that has all of its tiers, in any order. The more leading
    tiers two places share, the closer they are, as in CockroachDB.
    """

    tiers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Locality:
        """Return the locality written as `name=value,…`; blanks around its parts have no meaning.

        Raises: ValueError, which shows the text and what is wrong with it.
        """
        tiers: dict[str, str] = {}
        for part in text.split(",") if text.strip() else ():
            name, equals, value = (word.strip() for word in part.partition("="))
            if not (equals and _NAME.fullmatch(name) and _NAME.fullmatch(value)):
                tier = f": '{part.strip()}' is not a tier" if "," in text else ""
                raise ValueError(
                    f"'{text}' is not a locality{tier}; write each tier as name=value with letters,"
                    " digits and . _ - only, such as region=eu-west-1,zone=a"
                )
            if name in tiers:
                raise ValueError(f"'{text}' is not a locality: it has the tier '{name}' twice")
            tiers[name] = value
        return cls(tuple(tiers.items()))

    def matches(self, wanted: Locality) -> bool:
        """Return whether every tier of *wanted* is one of these; true for a *wanted* without tiers."""
        return set(wanted.tiers) <= set(self.tiers)

    def common(self, other: Locality) -> int:
        """Return how many leading tiers both have in common. The more there are, the closer the places."""
        count = 0
        for mine, theirs in zip(self.tiers, other.tiers, strict=False):
            if mine != theirs:
                break
            count += 1
        return count

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.tiers)
