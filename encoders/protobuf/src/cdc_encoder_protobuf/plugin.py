"""Registers the Protocol Buffers encoder."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="protobuf",
        encoder="cdc_encoder_protobuf.encoder:ProtobufEncoder",
        options="cdc_encoder_protobuf.options:ProtobufOptions",
        summary="Protocol Buffers messages, or files of length-delimited messages",
        envelopes=frozenset({"wrapped", "bare", "row", "key_only"}),
        outputs=frozenset({"messages", "files"}),
        rekeys=True,
        decoder="cdc_encoder_protobuf.decoder:ProtobufDecoder",
    )
