"""Options of the Parquet encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core.options import MB, ByteSize, option

__all__ = ["ParquetOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """What a user may set besides the options that every encoder shares."""

    parquet_row_group_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="Bytes of rows, before encoding and compression, at which a row group is closed. So much memory each open"
        " file takes.",
    )
    parquet_arrays: Literal["typed", "json"] = option(
        "typed", doc="How arrays are written: as lists, for which they must have one dimension, or as their JSON text."
    )
    parquet_time: Literal["time", "string"] = option(
        "time",
        doc="How times of day are written: as Parquet's TIME, which Spark reads with `spark.sql.timeType.enabled` only,"
        " or as text.",
    )
    parquet_special_values: Literal["error", "string"] = option(
        "error",
        doc="What becomes of values that Parquet's types lack, infinite dates and timestamps, the time 24:00:00,"
        " decimals that are NaN or infinite: an error, or text such as `infinity`, for which every column that could"
        " hold one is text.",
    )

    def __post_init__(self) -> None:
        if self.parquet_row_group_size < 1:
            raise ValueError("option 'parquet_row_group_size' must be at least 1 byte")
