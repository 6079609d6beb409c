"""Pure validators of the events that a consumer reads: feed them in the order of arrival, then call `failures`.

The invariants are those of CockroachDB's cdctest, made stricter. Validators do no I/O and do not know pytest. Callbacks
return the contents of the source. `validate` feeds validators from a sink's reader and an encoder's decoder.
"""

from cdc_conformance.validators.completeness import CompletenessValidator, CountValidator, VersionValidator
from cdc_conformance.validators.events import (
    All,
    AsOf,
    Change,
    Commit,
    Key,
    Row,
    SeenMark,
    SeenRow,
    State,
    StateAt,
    Validator,
    retried,
)
from cdc_conformance.validators.feeding import Arrived, events, validate
from cdc_conformance.validators.fields import KeyInValueValidator, MvccValidator, TopicValidator
from cdc_conformance.validators.order import BeforeAfterValidator, OrderValidator, ResolvedValidator
from cdc_conformance.validators.states import CutValidator, FingerprintValidator, PrefixValidator

__all__ = [
    "All",
    "Arrived",
    "AsOf",
    "BeforeAfterValidator",
    "Change",
    "Commit",
    "CompletenessValidator",
    "CountValidator",
    "CutValidator",
    "FingerprintValidator",
    "Key",
    "KeyInValueValidator",
    "MvccValidator",
    "OrderValidator",
    "PrefixValidator",
    "ResolvedValidator",
    "Row",
    "SeenMark",
    "SeenRow",
    "State",
    "StateAt",
    "TopicValidator",
    "Validator",
    "VersionValidator",
    "events",
    "retried",
    "validate",
]
