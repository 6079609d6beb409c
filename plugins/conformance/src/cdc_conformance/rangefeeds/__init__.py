"""The suite of rangefeeds: one test for each promise of `cdc_core.Rangefeed`."""

from __future__ import annotations

from cdc_conformance.rangefeeds.capabilities import CAPABILITIES, FIXTURES
from cdc_conformance.rangefeeds.following import Following
from cdc_conformance.rangefeeds.images import Images
from cdc_conformance.rangefeeds.leaving import Leaving
from cdc_conformance.rangefeeds.limits import Limits
from cdc_conformance.rangefeeds.marks import Marks
from cdc_conformance.rangefeeds.reading import Reading
from cdc_conformance.rangefeeds.releasing import Releasing
from cdc_conformance.rangefeeds.restarting import Restarting
from cdc_conformance.rangefeeds.scanning import Scanning
from cdc_conformance.rangefeeds.setting_up import SettingUp
from cdc_conformance.rangefeeds.suite import RangefeedSuite

__all__ = ["CAPABILITIES", "RangefeedConformance"]


class RangefeedConformance(
    SettingUp, Scanning, Following, Images, Marks, Limits, Reading, Restarting, Releasing, Leaving
):
    """Every promise of a rangefeed. Inherit from it in a test module, and say which rangefeed and where:

    class TestPostgres(RangefeedConformance):
        rangefeed = "postgres"

        @pytest.fixture
        def rangefeed_uri(self, database):
            return database

    The other fixtures are in `RangefeedSuite`, each with a default; `capabilities` names what the rangefeed can do
    beyond what every one must, see `CAPABILITIES`.
    """

    kind = "rangefeed"
    known_capabilities = CAPABILITIES
    capability_fixtures = FIXTURES
    reserved = RangefeedSuite.reserved | {"registration", "workload", "make_job", "open_feed"}
