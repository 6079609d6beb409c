"""Mistakes in packaging: modules that import what they must not."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import pytest

from cdc_conformance.reference.encoder import ReferenceEncoder, ReferenceEncoderOptions
from cdc_conformance.sabotage.breaking import breaks
from cdc_core import option


@breaks("test_registration_and_options_import_no_client_library")
@dataclass(frozen=True, slots=True, kw_only=True)
class ImportsALibrary(ReferenceEncoderOptions):
    """Imports a library for the default of an option."""

    workers: int = option(psutil.cpu_count() or 1, doc="Number of workers.")


@breaks("test_the_encoder_imports_neither_pytest_nor_pyspark")
class ImportsPytest(ReferenceEncoder):
    """Shares a module with its tests."""

    skip = pytest.skip
