"""The conformance of the JSON encoder, with and without a schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_conformance.encoders.envelopes import Resolved
from cdc_conformance.encoders.files import Services
from cdc_conformance.encoders.messages import Messages
from cdc_testing.kafka_fixtures import Registry
from cdc_testing.option_conformance import EncoderOptionConformance


class TestJson(EncoderConformance):
    encoder = "json"


@pytest.mark.slow
class TestJsonWithEveryOption(Messages, Resolved, Services, EncoderOptionConformance):
    encoder = "json"
    capabilities = frozenset({"json_null", "service"})

    @pytest.fixture
    def encoder_options(self, schema_registry: Registry) -> Mapping[str, Any]:
        return {"confluent_schema_registry": schema_registry.url, "encode_json_value_null_as_object": True}

    @pytest.fixture
    def outputs(self) -> frozenset[str]:
        return frozenset({"messages"})  # Files have no place for schema ids.

    @pytest.fixture
    def unreachable_options(self) -> Mapping[str, Any]:
        return {"confluent_schema_registry": "http://127.0.0.1:9"}
