"""The conformance of the Protocol Buffers encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_testing.option_conformance import EncoderOptionConformance


class TestProtobuf(EncoderConformance):
    encoder = "protobuf"
    capabilities = frozenset({"json_null"})


@pytest.mark.slow
class TestProtobufWithEveryOption(EncoderOptionConformance):
    encoder = "protobuf"
    capabilities = frozenset({"json_null"})

    @pytest.fixture
    def encoder_options(self) -> Mapping[str, Any]:
        return {"protobuf_arrays": "json", "protobuf_special_values": "string"}
