"""A mistake in packaging: the options import a library."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from cdc_conformance.reference.encoder import ReferenceEncoder, ReferenceEncoderOptions
from cdc_core import option

__all__ = ["ImportsALibrary"]


class ImportsALibrary(ReferenceEncoder):
    """Imports a library for the default of an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportsALibraryOptions(ReferenceEncoderOptions):
    """Options with a default that depends on the machine."""

    workers: int = option(psutil.cpu_count() or 1, doc="Number of workers.")
