"""A mistake in packaging: the options need a client library."""

from __future__ import annotations

import psutil

from cdc_conformance.reference.options import ReferenceOptions
from cdc_conformance.reference.sink import ReferenceSink

__all__ = ["ImportsItsClient"]


class ImportsItsClient(ReferenceSink):
    """Asks its client library for the default of an option."""


class ImportsItsClientOptions(ReferenceOptions):
    """Options with a default that depends on the machine."""

    workers = psutil.cpu_count()
