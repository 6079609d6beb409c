"""The fixtures of the suite of sinks."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Condition, Conformance, constant, does_not_apply, missing
from cdc_conformance.sinks.exactly_once import DirectoryStorage
from cdc_conformance.sinks.rig import ORDERS, ReadBack, SinkRig
from cdc_core import MB, EncoderRegistration, SinkReader, SinkRegistration
from cdc_core.plugins.classes import load_class

SINK_CAPABILITIES = {
    "disturbance": "the destination can be broken: `with disturbance.broken():`",
    "stall": "the destination can be made to accept nothing: `with disturbance.stalled():`",
    "refusal": "the destination can refuse single rows: `with disturbance.refusing(keys):`",
    "partial_failure": "with `refusal`: the sink knows which rows are refused, and lists them in `Flushed.refused`",
    "idempotent": "rows that a later attempt repeats are not duplicated",
    "row_limit": "the destination refuses every message larger than the fixture `row_limit_bytes`",
    "unreachable": "the fixture `unreachable_uri` is a destination that cannot be used",
}


def registered(cls: type[Any]) -> SinkRegistration:
    """Return the registration of the sink that a test class names."""
    return cast(SinkRegistration, registration_of(cls, "sink"))


def _is_readable(cls: type[Any]) -> bool:
    own, default = (inspect.getattr_static(each, "read_back") for each in (cls, SinkFixtures))
    return own is not default or bool(registered(cls).reader)


_READABLE = Condition(_is_readable, "the sink registers no reader, and read_back is not overridden")


class SinkFixtures(Conformance):
    """Fixtures. All but `sink_uri` have a default."""

    known_capabilities = SINK_CAPABILITIES
    capability_fixtures: ClassVar[Mapping[str, str]] = {
        "disturbance": "disturbance",
        "stall": "disturbance",
        "refusal": "disturbance",
        "partial_failure": "disturbance",
        "row_limit": "row_limit_bytes",
        "unreachable": "unreachable_uri",
    }
    fixture_conditions: ClassVar[Mapping[str, Condition]] = {
        "readable": _READABLE,
        "fresh_readable": _READABLE,
        "recording": Condition(lambda cls: bool(registered(cls).history), "the sink registers no history"),
    }
    reserved = Conformance.reserved | {
        "fresh",
        "fresh_readable",
        "rig",
        "readable",
        "sink_registration",
        "poison",
        "any_poison",
        "refusing",
        "large",
        "recording",
    }
    sink: ClassVar[str | SinkRegistration]
    """Name of the installed sink, or a registration."""

    sink_uri = missing("override the fixture sink_uri: return the URI of a place that is new for each test")
    """URI of a destination that no other test writes to."""
    sink_options = constant({})
    """Options of the changefeed, the sink and the encoder."""
    sink_format = constant("json")
    """The encoder: its name, or a registration."""

    @pytest.fixture
    def sink_registration(self) -> SinkRegistration:
        """The registration of the sink."""
        return registered(type(self))

    @pytest.fixture
    def read_back(self, sink_registration: SinkRegistration) -> ReadBack | None:
        """Makes a `SinkReader` of a sink's context: by default the registered class, or None without one."""
        if not sink_registration.reader:
            return None
        owner = f"reader of sink '{sink_registration.name}'"
        return load_class(sink_registration.reader, owner=owner, base=SinkReader)

    large_value_bytes = constant(200_000)
    """Size of a large value that the destination must accept."""
    row_limit_bytes = missing("override the fixture row_limit_bytes, or do not declare 'row_limit'")
    """Size that the destination refuses, for the capability row_limit."""
    unreachable_uri = missing("override the fixture unreachable_uri, or do not declare 'unreachable'")
    """URI of a destination that cannot be used, for the capability unreachable."""

    @pytest.fixture
    def secret_options(self, fresh: SinkRig) -> Sequence[Mapping[str, str]]:
        """Sets of options with `{secret}` in place of each secret: by default one set for each secret option.

        A sink must open with each set, or nothing is proved about its secrets.
        """
        cls = fresh.options_class()
        types = typing.get_type_hints(cls)
        names = [option.name for option in dataclasses.fields(cls) if option.metadata.get("secret")]
        return [{name: '{"name": "{secret}"}' if _is_table(types[name]) else "{secret}"} for name in names]

    memory_bound_bytes = constant(160 * MB)
    """The most memory that a sink may hold while its destination stalls."""
    close_limit_s = constant(5.0)
    """How long `close` may take while the destination stalls."""
    settle_s = constant(10.0)
    """How long threads and sockets may take to end after `close`."""
    watch_s = constant(0.5)
    """How long a test waits to see that something does not happen."""
    allowed_threads = constant(0)
    """Number of threads that a library starts little by little and keeps. Name the library in a comment."""
    other_processes = constant(True)
    """Whether other processes can reach the destination. If not, tests abandon sinks instead of crashing them."""
    disturbance = missing("override the fixture disturbance, or declare none of 'disturbance', 'stall' and 'refusal'")
    """Disturbs the destination, as the capabilities say."""

    @pytest.fixture
    def fresh(
        self,
        sink_registration: SinkRegistration,
        sink_uri: str,
        sink_options: Mapping[str, Any],
        sink_format: str | EncoderRegistration,
        read_back: ReadBack | None,
        other_processes: bool,
    ) -> Iterator[SinkRig]:
        """A changefeed into the sink under test, whose destination is not prepared."""
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
    def fresh_readable(self, fresh: SinkRig) -> SinkRig:
        """The same, for tests that read what arrived."""
        return fresh

    @pytest.fixture
    def rig(self, fresh: SinkRig) -> SinkRig:
        """The changefeed, whose destination is prepared for table orders."""
        fresh.start(ORDERS)
        return fresh

    @pytest.fixture
    def readable(self, rig: SinkRig) -> SinkRig:
        """The same, for tests that read what arrived."""
        return rig

    @pytest.fixture
    def storage(self, fresh: SinkRig) -> Any:
        """The files of a sink with a history, so that tests can damage them: `paths`, `read`, `write`, `remove`."""
        if not fresh.place.startswith("/"):
            does_not_apply("the sink does not write to a directory: override the fixture storage to damage its files")
        return DirectoryStorage(Path(fresh.place))


def _is_table(hint: object) -> bool:
    return any(dict in (choice, typing.get_origin(choice)) for choice in (hint, *typing.get_args(hint)))
