"""The conformance of the CSV encoder, which is for scans only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_testing.option_conformance import EncoderOptionConformance


class TestCsv(EncoderConformance):
    encoder = "csv"
    capabilities = frozenset({"json_null"})


@pytest.mark.slow
class TestCsvWithEveryOption(EncoderOptionConformance):
    encoder = "csv"
    capabilities = frozenset({"json_null"})

    @pytest.fixture
    def encoder_options(self) -> Mapping[str, Any]:
        return {"csv_header": True, "csv_null": "NULL"}
