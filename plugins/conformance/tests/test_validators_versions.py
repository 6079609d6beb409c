"""What `VersionValidator` finds."""

from __future__ import annotations

from cdc_conformance.validators import VersionValidator
from cdc_testing.seen import feed, row


def test_a_version_that_never_arrived_is_found() -> None:
    rows = [row("a", n, {"v": n}) for n in (3, 4, 6, 5, 8)]
    assert feed(VersionValidator("t", "v"), *rows) == ['topic t key ["a"]: versions [7] never arrived']


def test_repeats_and_deletes_are_accepted() -> None:
    rows = [row("a", 1, {"v": 1}), row("a", 2, {"v": 2}), row("a", 1, {"v": 1}), row("a", 3)]
    assert feed(VersionValidator("t", "v"), *rows) == []


def test_versions_are_counted_across_partitions() -> None:
    rows = [row("a", 1, {"v": 1}, at=0), row("a", 3, {"v": 3}, at=1)]
    assert feed(VersionValidator("t", "v"), *rows) == ['topic t key ["a"]: versions [2] never arrived']


def test_other_topics_are_ignored() -> None:
    rows = [row("a", 1, {"v": 1}), row("a", 3, {"v": 3}, topic="u"), row("a", 3, {}, topic="u")]
    assert feed(VersionValidator("t", "v"), *rows) == []
