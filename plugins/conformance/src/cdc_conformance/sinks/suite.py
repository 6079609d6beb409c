"""The suite of sinks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Conformance
from cdc_conformance.sinks.crashes import Crashes
from cdc_conformance.sinks.dead_letters import DeadLetters
from cdc_conformance.sinks.delivery import Delivery
from cdc_conformance.sinks.destination import Destination
from cdc_conformance.sinks.failures import Failures
from cdc_conformance.sinks.flushes import Flushes
from cdc_conformance.sinks.leftovers import Leftovers
from cdc_conformance.sinks.lifecycle import Lifecycle
from cdc_conformance.sinks.options import Options
from cdc_conformance.sinks.order import Order
from cdc_conformance.sinks.packaging import Packaging
from cdc_conformance.sinks.refusals import Refusals
from cdc_conformance.sinks.resolved import Resolved
from cdc_conformance.sinks.rig import ReadBack, SinkRig
from cdc_conformance.sinks.secrecy import Secrecy
from cdc_conformance.sinks.stalls import Stalls
from cdc_conformance.sinks.unencodable import Unencodable
from cdc_conformance.sinks.values import Values
from cdc_core import EncoderRegistration, SinkReader, SinkRegistration
from cdc_core.loading import load_class
from cdc_core.options import MB

__all__ = ["SINK_CAPABILITIES", "SinkConformance"]

SINK_CAPABILITIES = {
    "disturbance": "the destination can be broken: `with disturbance.broken():`",
    "stall": "the destination can be kept from accepting anything: `with disturbance.stalled():`",
    "partial_failure": "the destination says which rows it refuses; `with disturbance.refusing(keys):` makes it do so",
    "idempotent": "rows that a later run repeats are not there twice",
    "row_limit": "the destination takes no message larger than the fixture `row_limit_bytes`",
    "unreachable": "the fixture `unreachable_uri` is a destination that cannot be used",
}


class SinkConformance(
    Lifecycle,
    Destination,
    Values,
    Delivery,
    Flushes,
    Order,
    Crashes,
    Resolved,
    Failures,
    Unencodable,
    Refusals,
    DeadLetters,
    Stalls,
    Options,
    Secrecy,
    Leftovers,
    Packaging,
    Conformance,
):
    """Every promise of a sink. Say which sink, and where each test may write:

    class TestShelf(SinkConformance):
        sink = "shelf"

        @pytest.fixture
        def sink_uri(self, tmp_path):
            return f"shelf://{tmp_path}"

    All other fixtures have defaults. What a sink can do beyond what every sink must goes into `capabilities`.
    """

    kind = "sink"
    known_capabilities = SINK_CAPABILITIES
    reserved = Conformance.reserved | {"rig", "readable", "sink_registration", "poison", "refusing", "large"}
    summaries = frozenset({"test_bad_rows_are_put_aside_and_all_others_arrive"})
    sink: ClassVar[str | SinkRegistration]
    """Name of the installed sink, or a registration."""

    @pytest.fixture
    def sink_uri(self) -> str:
        """URI of a destination that no other test writes to."""
        pytest.fail("override the fixture sink_uri: return the URI of a place that is new for each test", pytrace=False)

    @pytest.fixture
    def sink_options(self) -> Mapping[str, Any]:
        """Options of changefeed, sink and encoder together."""
        return {}

    @pytest.fixture
    def sink_format(self) -> str | EncoderRegistration:
        """The encoder: its name, or a registration."""
        return "json"

    @pytest.fixture
    def sink_registration(self) -> SinkRegistration:
        """What is registered under the sink's name."""
        return cast(SinkRegistration, registration_of(type(self), "sink"))

    @pytest.fixture
    def read_back(self, sink_registration: SinkRegistration) -> ReadBack | None:
        """What makes a `SinkReader` of a sink's context: by default the registered one; None when nothing can."""
        if not sink_registration.reader:
            return None
        owner = f"reader of sink '{sink_registration.name}'"
        return load_class(sink_registration.reader, owner=owner, base=SinkReader)

    @pytest.fixture
    def large_value_bytes(self) -> int:
        """Size of a large value that the destination must take."""
        return 200_000

    @pytest.fixture
    def row_limit_bytes(self) -> int:
        """Size that no message may have, for the capability row_limit."""
        pytest.fail("override the fixture row_limit_bytes, or do not declare 'row_limit'", pytrace=False)

    @pytest.fixture
    def unreachable_uri(self) -> str:
        """URI of a destination that cannot be used, for the capability unreachable."""
        pytest.fail("override the fixture unreachable_uri, or do not declare 'unreachable'", pytrace=False)

    @pytest.fixture
    def secret_options(self, rig: SinkRig) -> Sequence[Mapping[str, str]]:
        """Options with secrets, `{secret}` in their place: by default each option declared secret, alone."""
        options = dataclasses.fields(rig.options_class())
        return [{option.name: "{secret}"} for option in options if option.metadata.get("secret")]

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """What a sink may hold in memory, at most, while its destination stalls."""
        return 160 * MB

    @pytest.fixture
    def close_limit_s(self) -> float:
        """How long `close` may take while the destination stalls."""
        return 5.0

    @pytest.fixture
    def settle_s(self) -> float:
        """How long threads and sockets may take to end after `close`."""
        return 10.0

    @pytest.fixture
    def watch_s(self) -> float:
        """How long a test looks on when something must not happen."""
        return 0.5

    @pytest.fixture
    def allowed_threads(self) -> int:
        """Threads that a library keeps for the process and starts little by little; say in a comment which."""
        return 0

    @pytest.fixture
    def other_processes(self) -> bool:
        """Whether another process can reach the destination. If not, sinks are left as they are instead of crashing."""
        return True

    @pytest.fixture
    def disturbance(self) -> Any:
        """What can disturb the destination, as the capabilities say."""
        pytest.fail(
            "override the fixture disturbance, or declare none of 'disturbance', 'stall' and 'partial_failure'",
            pytrace=False,
        )

    @pytest.fixture
    def rig(
        self,
        sink_registration: SinkRegistration,
        sink_uri: str,
        sink_options: Mapping[str, Any],
        sink_format: str | EncoderRegistration,
        read_back: ReadBack | None,
        other_processes: bool,
    ) -> Iterator[SinkRig]:
        """A changefeed into the sink under test, for the suite itself."""
        rig = SinkRig(
            sink_registration,
            uri=sink_uri,
            format=sink_format,
            options=sink_options,
            read_back=read_back,
            other_processes=other_processes,
        )
        yield rig
        rig.close_all()

    @pytest.fixture
    def readable(self, rig: SinkRig, read_back: ReadBack | None) -> SinkRig:
        """The changefeed, for tests that look at what arrived."""
        if read_back is None:
            pytest.skip(
                "nothing can read back what the sink wrote: register a SinkReader as `reader`, or override read_back"
            )
        return rig
