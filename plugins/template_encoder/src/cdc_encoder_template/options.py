"""The options of the encoder."""

from dataclasses import dataclass
from typing import Literal

from cdc_core import option


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    separator: Literal["&", ";"] = option("&", doc="Separator between fields.")
