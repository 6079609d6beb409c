"""File formats with their encoders and decoders, for tests of readers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from cdc_encoder_avro.decoder import AvroDecoder
from cdc_encoder_avro.encoder import AvroEncoder
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_parquet.decoder import ParquetDecoder
from cdc_encoder_parquet.encoder import ParquetEncoder
from cdc_encoder_parquet.options import ParquetOptions

from cdc_core import Decoder, Encoder, EncoderContext, Envelope, RowPlace

_WRAPPED = Envelope(updated=True, key_in_value=True)


@dataclass(frozen=True, kw_only=True)
class Form:
    """An encoder with options and envelope. *vectorised*: its decoder reads whole columns."""

    name: str
    encoder_class: type[Encoder]
    decoder_class: type[Decoder]
    options: Any
    envelope: Envelope = _WRAPPED
    vectorised: bool = True

    @cached_property
    def encoder(self) -> Encoder:
        return self.encoder_class(self._context)

    @cached_property
    def decoder(self) -> Decoder:
        return self.decoder_class(self._context)

    def with_everything(self) -> Self:
        """Return the same form with all metadata that its envelope has a place for."""
        diff = self.envelope.row is RowPlace.MEMBER
        return dataclasses.replace(self, envelope=dataclasses.replace(self.envelope, diff=diff, mvcc_timestamp=True))

    @property
    def _context(self) -> EncoderContext:
        return EncoderContext(changefeed="c", envelope=self.envelope, options=self.options, output="files")

    def __str__(self) -> str:
        return self.name


_BARE = Envelope(name="bare", updated=True, key_in_value=True)
_JSON: dict[str, Any] = {"encoder_class": JsonEncoder, "decoder_class": JsonDecoder}
_PARQUET: dict[str, Any] = {"encoder_class": ParquetEncoder, "decoder_class": ParquetDecoder}
_TEXTS = ParquetOptions(parquet_special_values="string", parquet_arrays="json", parquet_time="string")
FORMS = (
    Form(name="json wrapped", options=JsonOptions(), **_JSON),
    Form(name="json with null objects", options=JsonOptions(encode_json_value_null_as_object=True), **_JSON),
    Form(name="json bare", options=JsonOptions(), envelope=_BARE, **_JSON),
    Form(name="parquet", options=ParquetOptions(), **_PARQUET),
    Form(name="parquet as text", options=_TEXTS, **_PARQUET),
    Form(
        name="avro",
        options=AvroOptions(avro_special_values="string"),
        encoder_class=AvroEncoder,
        decoder_class=AvroDecoder,
        vectorised=False,
    ),
)
