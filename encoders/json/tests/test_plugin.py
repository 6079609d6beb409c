from __future__ import annotations

import subprocess
import sys

from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.plugin import cdc_register_encoders


def test_the_registration_names_the_encoder_and_its_options() -> None:
    (registration,) = cdc_register_encoders()
    assert registration.target == f"{JsonEncoder.__module__}:{JsonEncoder.__name__}"
    assert registration.options == f"{JsonOptions.__module__}:{JsonOptions.__name__}"


def test_registering_imports_no_polars() -> None:
    program = "import sys, cdc_encoder_json.plugin; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
