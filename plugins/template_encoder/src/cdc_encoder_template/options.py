"""What a user may say about the encoder, as options of the changefeed."""

from dataclasses import dataclass
from typing import Literal

from cdc_core.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    separator: Literal["&", ";"] = option("&", doc="What stands between two fields.")
