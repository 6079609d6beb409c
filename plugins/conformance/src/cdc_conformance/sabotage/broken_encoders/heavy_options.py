"""A mistake in packaging: the options import a library."""

from __future__ import annotations

import psutil

from cdc_conformance.reference.encoder import ReferenceEncoder, ReferenceEncoderOptions

__all__ = ["ImportsALibrary"]


class ImportsALibrary(ReferenceEncoder):
    """Imports a library for the default of an option."""


class ImportsALibraryOptions(ReferenceEncoderOptions):
    """Options with a default that depends on the machine."""

    workers = psutil.cpu_count()
