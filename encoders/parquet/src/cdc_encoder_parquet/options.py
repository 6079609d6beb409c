"""Options of the Parquet encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core import MB, ByteSize, option


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """Options of the Parquet encoder, besides those that all encoders share."""

    parquet_row_group_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="Size of a row group, in bytes before encoding and compression. Each open file uses this much memory.",
    )
    parquet_arrays: Literal["typed", "json"] = option(
        "typed", doc="How to write arrays: as lists (one-dimensional only) or as JSON text."
    )
    parquet_time: Literal["time", "string"] = option(
        "time",
        doc="How to write times of day: as Parquet's TIME, which Spark reads only with `spark.sql.timeType.enabled`, or"
        " as text.",
    )
    parquet_special_values: Literal["error", "string"] = option(
        "error",
        doc="What to do with values that Parquet's types cannot represent: infinite dates and timestamps, the time"
        " 24:00:00, and decimals that are NaN or infinite. `error` refuses the row; `string` writes text such as"
        " `infinity`, and turns every date, time, timestamp and decimal column into a text column.",
    )

    def __post_init__(self) -> None:
        if self.parquet_row_group_size < 1:
            raise ValueError("option 'parquet_row_group_size' must be at least 1 byte")
