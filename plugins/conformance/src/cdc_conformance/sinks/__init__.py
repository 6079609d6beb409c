"""The suite of sinks: inherit from `SinkConformance`. Each module has groups of promises."""

from __future__ import annotations

from cdc_conformance.sinks.delivery import Crashes, Delivery, Flushes, Order
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.failures import Failures, Stalls
from cdc_conformance.sinks.fixtures import SINK_CAPABILITIES, SinkFixtures
from cdc_conformance.sinks.lifecycle import Destination, Leftovers, Lifecycle
from cdc_conformance.sinks.options import Options, Packaging, Secrecy
from cdc_conformance.sinks.refusals import Refusals
from cdc_conformance.sinks.unencodable import DeadLetters, Unencodable
from cdc_conformance.sinks.values import Resolved, Values

__all__ = ["SINK_CAPABILITIES", "SinkConformance"]


class SinkConformance(
    Lifecycle,
    Destination,
    Values,
    Delivery,
    Flushes,
    Order,
    Crashes,
    Resolved,
    ExactlyOnce,
    Failures,
    Unencodable,
    Refusals,
    DeadLetters,
    Stalls,
    Options,
    Secrecy,
    Leftovers,
    Packaging,
    SinkFixtures,
):
    """Every promise of a sink. Name the sink and a place that is new for each test:

    class TestShelf(SinkConformance):
        sink = "shelf"

        @pytest.fixture
        def sink_uri(self, tmp_path):
            return f"shelf://{tmp_path}"

    All other fixtures have defaults. Declare in `capabilities` what the sink can do and not every sink must.
    """

    kind = "sink"
    summaries = frozenset({"test_bad_rows_become_dead_letters_and_all_others_arrive"})
