"""The suite of encoders: what it is about and what it is given."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.encoders.bad_rows import BadRows
from cdc_conformance.encoders.envelopes import Envelopes
from cdc_conformance.encoders.files import Files
from cdc_conformance.encoders.keys import Keys
from cdc_conformance.encoders.messages import Messages
from cdc_conformance.encoders.packaging import Packaging
from cdc_conformance.encoders.resolved import Resolved
from cdc_conformance.encoders.resources import Resources
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.encoders.samples import SAMPLES, Sample
from cdc_conformance.encoders.scans import Scans
from cdc_conformance.encoders.schemas import Schemas
from cdc_conformance.encoders.services import Services
from cdc_conformance.encoders.values import Values
from cdc_conformance.promises import Conformance
from cdc_core import EncoderRegistration

__all__ = ["EncoderConformance"]


class EncoderConformance(
    Values,
    Messages,
    Envelopes,
    Keys,
    Schemas,
    Resolved,
    Files,
    BadRows,
    Scans,
    Packaging,
    Services,
    Resources,
    Conformance,
):
    """Every promise of an encoder.

        class TestYaml(EncoderConformance):
            encoder = "yaml"

    Every envelope and output of the registration is proved. The registration's `decoder` reads what was written; all
    but a few promises need it.
    """

    kind = "encoder"
    reserved = Conformance.reserved | {"rig", "_registration"}
    encoder: ClassVar[str | EncoderRegistration] = ""
    """The name of an installed encoder, or a registration."""
    known_capabilities: ClassVar[Mapping[str, str]] = {
        "json_null": "a JSON null in a json column reads differently from an SQL NULL",
        "service": "rows need a service, such as a schema registry; `unreachable_options` name one that is away",
    }
    capability_fixtures: ClassVar[Mapping[str, str]] = {"service": "unreachable_options"}

    @pytest.fixture
    def encoder_options(self) -> Mapping[str, Any]:
        """Options of the encoder and of the changefeed, such as where its schema registry is.

        A registry must take any schema for any subject (compatibility NONE): tables change their shape here.
        """
        return {}

    @pytest.fixture
    def outputs(self) -> Collection[str]:
        """What is proved of what the registration promises; less where the options rule out an output."""
        return self._registration.outputs

    @pytest.fixture
    def topic(self) -> str:
        """What the topics begin with, new for each test: a schema registry remembers them."""
        return f"conformance_{secrets.token_hex(6)}"

    @pytest.fixture
    def samples(self) -> Sequence[Sample]:
        """The columns and values that are written; a column that `check` refuses is left out by itself."""
        return SAMPLES

    @pytest.fixture
    def secret_options(self) -> Mapping[str, Any]:
        """A value with the word `sesame` for each secret option; without any, texts of the form of a URL."""
        return {}

    @pytest.fixture
    def unreachable_options(self) -> Mapping[str, Any]:
        """Options by which the service that the encoder needs is where nobody answers, such as 127.0.0.1:9."""
        return {}

    @pytest.fixture
    def rig(self, encoder_options: Mapping[str, Any], outputs: Collection[str]) -> EncoderRig:
        """Opens encoders and decoders as a job does."""
        return EncoderRig(self._registration, options=encoder_options, outputs=outputs)

    @property
    def _registration(self) -> EncoderRegistration:
        return cast(EncoderRegistration, registration_of(type(self), "encoder"))
