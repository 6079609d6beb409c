"""The part of the suite of encoders that options can break."""

from __future__ import annotations

from cdc_conformance.encoders.envelopes import Envelopes
from cdc_conformance.encoders.files import Files
from cdc_conformance.encoders.keys import Keys
from cdc_conformance.encoders.suite import EncoderFixtures
from cdc_conformance.encoders.values import Schemas, Values


class EncoderOptionConformance(Values, Envelopes, Keys, Schemas, Files, EncoderFixtures):
    """What keys, values and files contain. All else is the same with any option."""

    kind = "encoder"
