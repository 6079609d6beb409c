"""All validators for a history, each as strict as possible."""

from __future__ import annotations

from cdc_conformance.validators import (
    BeforeAfterValidator,
    CompletenessValidator,
    CountValidator,
    CutValidator,
    FingerprintValidator,
    KeyInValueValidator,
    MvccValidator,
    OrderValidator,
    PrefixValidator,
    ResolvedValidator,
    TopicValidator,
    Validator,
    VersionValidator,
)
from cdc_testing.histories import History, invariant

__all__ = ["strict_validators"]


def strict_validators(history: History) -> dict[str, Validator]:
    """Return every validator by name."""
    commits = [commit for _, commit in history.commits]
    places = history.endpoints
    return {
        "order": OrderValidator(),
        "before_after": BeforeAfterValidator(history.as_of),
        "before_after_seen": BeforeAfterValidator(),
        "fingerprint": FingerprintValidator(history.state_at, endpoints=places),
        "prefix": PrefixValidator(commits, endpoints=places, whole=True),
        "cuts": CutValidator(invariant, endpoints=places, every_timestamp=True),
        "resolved": ResolvedValidator(places),
        "mvcc": MvccValidator(),
        "key_in_value": KeyInValueValidator({"t": ["id"], "u": ["id"]}),
        "topic": TopicValidator(["t", "u"], in_value=True),
        "completeness": CompletenessValidator(commits, started=history.started),
        "counted completeness": CompletenessValidator(commits, started=history.started, column="n"),
        "versions of t": VersionValidator("t", "n"),
        "versions of u": VersionValidator("u", "n"),
        "count": CountValidator(least_rows=10, least_marks=len(history.steps)),
    }
