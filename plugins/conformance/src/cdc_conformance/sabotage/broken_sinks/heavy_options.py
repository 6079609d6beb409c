"""A mistake in packaging: the options come with a client library."""

from __future__ import annotations

import psutil

from cdc_conformance.reference.sink import ReferenceOptions, ReferenceSink

__all__ = ["ImportsItsClient"]


class ImportsItsClient(ReferenceSink):
    """Asks its client library for a default."""


class ImportsItsClientOptions(ReferenceOptions):
    """Options with a default of the machine's."""

    workers = psutil.cpu_count()
