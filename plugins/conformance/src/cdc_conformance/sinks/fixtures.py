"""What the suite of sinks is given, and builds of it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Conformance
from cdc_conformance.sinks.recording import DirectoryStorage
from cdc_conformance.sinks.rig import ReadBack, SinkRig
from cdc_core import EncoderRegistration, SinkReader, SinkRegistration
from cdc_core.options import MB
from cdc_core.plugins.classes import load_class

__all__ = ["SINK_CAPABILITIES", "SinkFixtures"]

SINK_CAPABILITIES = {
    "disturbance": "the destination can be broken: `with disturbance.broken():`",
    "stall": "the destination can be kept from accepting anything: `with disturbance.stalled():`",
    "refusal": "the destination can refuse single rows: `with disturbance.refusing(keys):`",
    "partial_failure": "with `refusal`: the sink knows which rows are refused, and names them by PartialWriteError",
    "idempotent": "rows that a later run repeats are not there twice",
    "row_limit": "the destination takes no message larger than the fixture `row_limit_bytes`",
    "unreachable": "the fixture `unreachable_uri` is a destination that cannot be used",
}


class SinkFixtures(Conformance):
    """Fixtures, all of them with a default but `sink_uri`."""

    known_capabilities = SINK_CAPABILITIES
    capability_fixtures: ClassVar[Mapping[str, str]] = {
        "disturbance": "disturbance",
        "stall": "disturbance",
        "refusal": "disturbance",
        "partial_failure": "disturbance",
        "row_limit": "row_limit_bytes",
        "unreachable": "unreachable_uri",
    }
    reserved = Conformance.reserved | {
        "rig",
        "readable",
        "sink_registration",
        "poison",
        "refusing",
        "large",
        "recording",
    }
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
        """Options with secrets, `{secret}` in their place: by default each option declared secret, alone.

        Each set must make a sink, or nothing is proved of its secrets.
        """
        cls = rig.options_class()
        types = typing.get_type_hints(cls)
        names = [option.name for option in dataclasses.fields(cls) if option.metadata.get("secret")]
        return [{name: '{"name": "{secret}"}' if _is_table(types[name]) else "{secret}"} for name in names]

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
            "override the fixture disturbance, or declare none of 'disturbance', 'stall' and 'refusal'",
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

    @pytest.fixture
    def storage(self, rig: SinkRig) -> Any:
        """The files of a sink with a history, to spoil them: `paths()`, `read`, `write` and `remove` of a path."""
        if not rig.place.startswith("/"):
            pytest.skip("override the fixture storage: where a sink writes to no directory, the suite spoils no files")
        return DirectoryStorage(Path(rig.place))


def _is_table(hint: object) -> bool:
    return any(dict in (choice, typing.get_origin(choice)) for choice in (hint, *typing.get_args(hint)))
