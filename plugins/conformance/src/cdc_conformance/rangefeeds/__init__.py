"""The suite of rangefeeds: one test for each promise of the four parts in `cdc_core.rangefeed`."""

from __future__ import annotations

from cdc_conformance.rangefeeds.concurrency import Concurrency
from cdc_conformance.rangefeeds.history import History
from cdc_conformance.rangefeeds.lifecycle import Closing, Startup
from cdc_conformance.rangefeeds.marks import Marks
from cdc_conformance.rangefeeds.rescans import Moves, Rescans
from cdc_conformance.rangefeeds.restarts import Outages, Restarts
from cdc_conformance.rangefeeds.row_contents import RowContents
from cdc_conformance.rangefeeds.scan_and_log import InitialScan, Transactions
from cdc_conformance.rangefeeds.schema_boundaries import SchemaBoundaries
from cdc_conformance.rangefeeds.slices import Limits, Slices
from cdc_conformance.rangefeeds.suite import CAPABILITIES, FIXTURES, RangefeedSuite

__all__ = ["CAPABILITIES", "RangefeedConformance"]


class RangefeedConformance(
    Startup,
    InitialScan,
    Transactions,
    RowContents,
    SchemaBoundaries,
    Rescans,
    Moves,
    Marks,
    Concurrency,
    Limits,
    Slices,
    Restarts,
    History,
    Closing,
    Outages,
):
    """Every promise of a rangefeed. Inherit from it in a test module, and name the rangefeed and a source:

    class TestPostgres(RangefeedConformance):
        rangefeed = "postgres"

        @pytest.fixture
        def rangefeed_uri(self, database):
            return database

    The other fixtures are in `RangefeedSuite`, each with a default. `capabilities` names what the rangefeed can do
    beyond what every rangefeed must do; see `CAPABILITIES`.
    """

    kind = "rangefeed"
    known_capabilities = CAPABILITIES
    capability_fixtures = FIXTURES
    summaries = frozenset({"test_rows_and_marks_are_right_while_others_commit"})
    reserved = RangefeedSuite.reserved | {"registration", "first_table", "workload", "make_changefeed", "open_feed"}
