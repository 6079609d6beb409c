"""Options of the Protocol Buffers encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufOptions:
    """Options of the Protocol Buffers encoder, besides those that all encoders share."""

    protobuf_arrays: Literal["typed", "json"] = option(
        "typed", doc="How to write arrays: as `array_value` (one-dimensional only) or as JSON text in `string_value`."
    )
    protobuf_special_values: Literal["error", "string"] = option(
        "error",
        doc="What to do with timestamps that `google.protobuf.Timestamp` cannot represent: infinities, and times"
        " outside the years 1 to 9999. `error` refuses the row; `string` writes text such as `infinity` in"
        " `string_value`.",
    )
