"""Pure validators of what a consumer reads: feed events in the order of arrival, then ask for failures.

The invariants are those of CockroachDB's cdctest, made stricter. No validator does I/O or knows pytest; what the source
held comes from callbacks. `validate` feeds them from a sink's reader and an encoder's decoder.
"""

from cdc_conformance.validators.count import CountValidator
from cdc_conformance.validators.cuts import CutValidator
from cdc_conformance.validators.events import Row, SeenMark, SeenRow
from cdc_conformance.validators.feeding import Arrived, validate
from cdc_conformance.validators.order import OrderValidator
from cdc_conformance.validators.validator import All, Validator
from cdc_conformance.validators.versions import VersionValidator

__all__ = [
    "All",
    "Arrived",
    "CountValidator",
    "CutValidator",
    "OrderValidator",
    "Row",
    "SeenMark",
    "SeenRow",
    "Validator",
    "VersionValidator",
    "validate",
]
