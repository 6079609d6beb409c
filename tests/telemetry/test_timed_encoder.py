"""An encoder whose time is measured is the encoder that its sink knows."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.scripted import TABLE, PlainEncoder

from cdc_core import ContractError, EncoderContext, Envelope, FileBody, MessageBatch, RowBatch, TableSchema, Timestamp
from cdc_core.telemetry.measuring import TimedEncoder
from cdc_core.telemetry.metrics import MESSAGE_BYTES
from cdc_core.telemetry.stages import ENCODE, SINK, STAGES, Stages

FOUR_ROWS = RowBatch.of(
    TABLE,
    op=pa.array([1] * 4, pa.uint8()),
    updated=RowBatch.timestamps(pa.array([1] * 4, pa.int64()), pa.array([0] * 4, pa.int32())),
    key=RowBatch.struct(TABLE.key_type, [pa.array([1] * 4)]),
    after=RowBatch.struct(TABLE.after_type, [pa.array([1] * 4), pa.array([2] * 4)]),
)
ROWS = FOUR_ROWS.slice(0, 1)


class OwnBody(FileBody):
    """Holds each row until the body ends."""

    def write(self, rows: RowBatch) -> bytes:
        self.held_bytes += 10 * len(rows)
        return b""

    def finish(self) -> bytes:
        self.held_bytes = 0
        return b"rest"


class OwnEncoder(PlainEncoder):
    """Overrides everything that it may."""

    file_extension = ".own"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.checked: list[str] = []
        self.dictionary = "v1"

    def check(self, tables: Any) -> None:
        self.checked += [topic for _, topic in tables]

    def identities(self, tables: Any) -> dict[str, str | None]:
        return {topic: "7" for _, topic in tables}

    def keyed(self, rows: RowBatch) -> RowBatch:
        return rows.slice(0, 0)

    def keyed_schema(self, schema: TableSchema) -> TableSchema:
        raise LookupError(schema.name.table)

    def open_body(self, topic: str) -> FileBody:
        return OwnBody()


CONTEXT = EncoderContext(changefeed="t", envelope=Envelope(), options=None)


def test_a_sink_finds_the_encoder_as_it_is() -> None:
    encoder = OwnEncoder(CONTEXT)
    own = dict(vars(encoder))
    timed = TimedEncoder(encoder)
    timed.check([(TABLE, "t")])
    assert (encoder.checked, timed.identities([(TABLE, "t")])) == (["t"], {"t": "7"})
    assert (timed.file_extension, timed.context, len(timed.keyed(ROWS))) == (".own", CONTEXT, 0)
    with pytest.raises(LookupError):
        timed.keyed_schema(TABLE)
    body = timed.open_body("t")
    assert (body.write(ROWS), body.held_bytes, body.finish(), body.held_bytes) == (b"", 10, b"rest", 0)
    encoder.dictionary = "v2"
    assert copy.copy(timed).dictionary == "v2"
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = timed.unheard_of
    assert dict(vars(encoder)).keys() == own.keys(), "nothing of it is replaced"


def test_its_calls_are_at_the_stage_encode_and_messages_are_measured_not_files(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cdc_core.telemetry.stages.time.monotonic", lambda: now[0])

    class SlowEncoder(PlainEncoder):
        def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
            now[0] += 5
            return super().encode(rows, topic=topic)

    timed = TimedEncoder(SlowEncoder(CONTEXT))
    told: list[str] = []
    with Stages(SINK, changed=lambda stages: told.append(stages.now)).measured() as stages:
        body = timed.open_body("t")
        assert bytes(body.write(ROWS)) == b"{'id': 1, 'n': 2}\n"
        assert body.finish() == b""
        assert _measured_messages(stages) == 0
        assert timed.encode(ROWS, topic="t").value.to_pylist() == [b"{'id': 1, 'n': 2}"]
        assert timed.encode_resolved("t", Timestamp(1))
    assert told == [ENCODE, SINK] * 5
    assert stages.seconds == {**dict.fromkeys(STAGES, 0.0), ENCODE: 10}
    assert _measured_messages(stages) == 1


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_the_sizes_of_values_are_counted_and_a_tombstone_has_none(type_: pa.DataType) -> None:
    values: Any = pa.array([b"x" * 64, None, b"x" * 65, b"x" * 300], type_)

    class ReadyEncoder(PlainEncoder):
        def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
            return MessageBatch(topic=topic, key=values, value=values, updated=values)

    with Stages(SINK).measured() as stages:
        TimedEncoder(ReadyEncoder(CONTEXT)).encode(FOUR_ROWS, topic="t")
    [sizes] = stages.tally.samples(MESSAGE_BYTES)
    assert (sizes.counts[:3], sizes.value) == ([2, 1, 1], 429)


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize(
    ("keys", "values", "fault"),
    [(4, 3, "4 keys and 3 values for 4 rows"), (3, 3, "3 keys and 3 values for 4 rows"), (None, None, "NoneType")],
)
def test_an_encoder_that_leaves_out_rows_is_named(
    keys: int | None, values: int | None, fault: str, *, files: bool
) -> None:
    class Forgetful(PlainEncoder):
        def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
            if keys is None or values is None:
                return None  # type: ignore[return-value]
            column = pa.array([b"x"] * 4, pa.binary())
            return MessageBatch(topic=topic, key=column[:keys], value=column[:values], updated=rows.column("updated"))

    timed = TimedEncoder(Forgetful(CONTEXT))
    with pytest.raises(ContractError) as raised:
        timed.open_body("t").write(FOUR_ROWS) if files else timed.encode(FOUR_ROWS, topic="t")
    assert str(raised.value) == f"encoder Forgetful broke its contract: encode() returned {fault}"


def _measured_messages(stages: Stages) -> float:
    return sum(sum(sample.counts) for sample in stages.tally.samples(MESSAGE_BYTES))
