"""Options of the CSV encoder."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.options import option

__all__ = ["CsvOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """What a user may set besides the options that every encoder shares."""

    csv_header: bool = option(False, doc="Begin each file with a line of the columns' names.")
    csv_null: str = option(
        "",
        doc="What stands for NULL, without quotes; a value of the same text stands between quotes. CockroachDB writes"
        ' `NULL`; most tools take nothing for NULL and `""` for the empty text.',
    )

    def __post_init__(self) -> None:
        if any(character in self.csv_null for character in '",\r\n'):
            raise ValueError("option 'csv_null' must be without commas, quotes and line ends")
