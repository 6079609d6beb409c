"""Mistakes in packaging: modules that import what they must not."""

from __future__ import annotations

import psutil
import pytest

from cdc_conformance.reference.sink import ReferenceOptions, ReferenceSink
from cdc_conformance.sabotage.breaking import breaks


@breaks("test_registration_and_options_import_no_client_library")
class ImportsItsClient(ReferenceOptions):
    """Asks its client library for the default of an option."""

    workers = psutil.cpu_count()


@breaks("test_the_sink_imports_neither_pytest_nor_pyspark")
class ImportsPytest(ReferenceSink):
    """Shares a module with its tests."""

    approximately = staticmethod(pytest.approx)
