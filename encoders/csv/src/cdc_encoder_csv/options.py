"""Options of the CSV encoder."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import option


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """Options of the CSV encoder, besides those that all encoders share."""

    csv_header: bool = option(False, doc="Begin each file with a line of column names.")
    csv_null: str = option(
        "",
        doc="Text to write for NULL, unquoted. A value equal to this text is quoted. CockroachDB writes `NULL`; most"
        ' tools read an empty field as NULL and `""` as the empty string.',
    )

    def __post_init__(self) -> None:
        if any(character in self.csv_null for character in '",\r\n'):
            raise ValueError("option 'csv_null' must not contain commas, quotes or line ends")
