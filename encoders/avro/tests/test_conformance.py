"""The conformance of the Avro encoder: files, and messages with a real schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_testing.kafka_fixtures import Registry
from cdc_testing.option_conformance import EncoderOptionConformance


class TestAvro(EncoderConformance):
    encoder = "avro"
    capabilities = frozenset({"json_null", "service"})

    @pytest.fixture
    def encoder_options(self, schema_registry: Registry) -> Mapping[str, Any]:
        return {"confluent_schema_registry": schema_registry.url}

    @pytest.fixture
    def unreachable_options(self) -> Mapping[str, Any]:
        return {"confluent_schema_registry": "http://127.0.0.1:9"}


@pytest.mark.slow
class TestAvroWithEveryOption(EncoderOptionConformance):
    encoder = "avro"
    capabilities = frozenset({"json_null"})

    @pytest.fixture
    def encoder_options(self, schema_registry: Registry) -> Mapping[str, Any]:
        return {
            "confluent_schema_registry": schema_registry.url,
            "avro_schema_prefix": "shop.",
            "avro_enum": "enum",
            "avro_arrays": "json",
            "avro_special_values": "string",
            "avro_codec": "zstandard",
        }
