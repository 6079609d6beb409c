"""The suite of encoders."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import pytest

from cdc_conformance.encoders.envelopes import Envelopes, Resolved, Scans
from cdc_conformance.encoders.files import BadRows, Files, Services
from cdc_conformance.encoders.form import registered
from cdc_conformance.encoders.keys import Keys
from cdc_conformance.encoders.messages import Messages
from cdc_conformance.encoders.packaging import Packaging, Resources
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.encoders.samples import SAMPLES
from cdc_conformance.encoders.values import Schemas, Values
from cdc_conformance.promises import Conformance, constant
from cdc_core import EncoderRegistration


class EncoderFixtures(Conformance):
    """Fixtures. All have a default."""

    reserved = Conformance.reserved | {"rig"}
    encoder: ClassVar[str | EncoderRegistration] = ""
    """The name of an installed encoder, or a registration."""
    known_capabilities: ClassVar[Mapping[str, str]] = {
        "json_null": "a JSON null in a json column is read differently from a SQL NULL",
        "service": "encoding requires a service, such as a schema registry; the fixture `unreachable_options` names one"
        " that is unreachable",
    }
    capability_fixtures: ClassVar[Mapping[str, str]] = {"service": "unreachable_options"}

    encoder_options = constant({})
    """Options of the encoder and of the changefeed, such as the URL of a schema registry.

    A registry must accept any schema in any subject (compatibility NONE), because the suite changes tables.
    """

    @pytest.fixture
    def outputs(self) -> Collection[str]:
        """The outputs that the suite tests: those of the registration, or fewer when the options exclude one."""
        return registered(type(self)).outputs

    @pytest.fixture
    def topic(self) -> str:
        """A prefix of topics that is new for each test, because a schema registry remembers topics."""
        return f"conformance_{secrets.token_hex(6)}"

    samples = constant(SAMPLES)
    """The columns and values that are encoded, without columns that `check` refuses."""
    secret_options = constant({})
    """A value with the word `sesame` for each secret option. The default is a URL for each."""
    unreachable_options = constant({})
    """Options of a service that is unreachable, such as one at 127.0.0.1:9."""

    @pytest.fixture
    def rig(self, encoder_options: Mapping[str, Any], outputs: Collection[str]) -> EncoderRig:
        """Opens encoders and decoders as a changefeed does."""
        return EncoderRig(registered(type(self)), options=encoder_options, outputs=outputs)


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
    EncoderFixtures,
):
    """Every promise of an encoder.

        class TestYaml(EncoderConformance):
            encoder = "yaml"

    The suite tests every envelope and output of the registration. Most promises need the registered decoder.
    """

    kind = "encoder"
