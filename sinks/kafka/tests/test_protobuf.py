"""Consumers read rows and marks with nothing but the published `changefeed.proto`."""

from __future__ import annotations

from cdc_encoder_protobuf.encoder import ProtobufEncoder
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows
from cdc_testing.published_proto import message

from cdc_core import EncoderContext, Envelope, Timestamp


def test_a_third_party_reads_rows_deletes_and_marks(kafka: KafkaRig) -> None:
    envelope = Envelope(updated=True)
    encoder = ProtobufEncoder(EncoderContext(changefeed="feed", envelope=envelope, options=ProtobufOptions()))
    sink = kafka.sink({"topic_partitions": "1"}, encoder=encoder)
    sink.emit(rows([1, 2], texts=["é", None], walls=[100, 200], deleted=[]))
    sink.emit(rows([1], walls=[300], deleted=[1]))
    sink.flush()
    kafka.resolved_sink({"topic_partitions": "1"}, encoder=encoder).emit_resolved(Timestamp(400))
    received = kafka.received()
    *changes, mark = [message("Message", each.value or b"") for each in received]
    assert [message("Key", each.key or b"").key["id"].int64_value for each in received[:-1]] == [1, 2, 1]
    assert [each.wrapped.updated for each in changes] == [str(Timestamp(wall)) for wall in (100, 200, 300)]
    assert [each.wrapped.HasField("after") for each in changes] == [True, True, False]
    texts = [each.wrapped.after.values["text"] for each in changes[:2]]
    assert [text.WhichOneof("value") and text.string_value for text in texts] == ["é", None]
    assert mark.resolved.resolved == str(Timestamp(400))
