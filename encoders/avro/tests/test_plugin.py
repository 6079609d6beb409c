from __future__ import annotations

import subprocess
import sys

import pytest
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.plugin import cdc_register_encoders


def test_the_registration_names_the_options() -> None:
    (registration,) = cdc_register_encoders()
    assert registration.options == f"{AvroOptions.__module__}:{AvroOptions.__name__}"


@pytest.mark.parametrize("library", ["polars", "fastavro"])
def test_registering_imports_no_library(library: str) -> None:
    program = f"import sys, cdc_encoder_avro.plugin; sys.exit({library!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
