"""The conformance of the Parquet encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_testing.option_conformance import EncoderOptionConformance


class TestParquet(EncoderConformance):
    encoder = "parquet"
    capabilities = frozenset({"json_null"})


@pytest.mark.slow
class TestParquetWithEveryOption(EncoderOptionConformance):
    encoder = "parquet"
    capabilities = frozenset({"json_null"})

    @pytest.fixture
    def encoder_options(self) -> Mapping[str, Any]:
        return {
            "parquet_row_group_size": "1KB",
            "parquet_arrays": "json",
            "parquet_time": "string",
            "parquet_special_values": "string",
        }
