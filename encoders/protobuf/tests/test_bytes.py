"""The encoder writes the same bytes as the official library, which encodes one message at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cdc_column_texts import NoRepresentationError, plain_texts
from cdc_encoder_protobuf.encoder import ProtobufEncoder
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.values import values
from cdc_testing.drawn_columns import COLUMNS, ITEMS, column, drawn_batch, json_texts
from cdc_testing.published_proto import message
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Timestamp

STRING = ProtobufOptions(protobuf_special_values="string")
YEAR_1_US, YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
FIELDS = {
    Kind.BOOL: "bool_value",
    Kind.INT: "int64_value",
    Kind.FLOAT: "double_value",
    Kind.BYTES: "bytes_value",
    Kind.UUID: "uuid_value",
    Kind.DATE: "date_value",
    Kind.TIME: "time_value",
    Kind.TIMETZ: "time_value",
    Kind.INTERVAL: "interval_value",
}


def filled(target: Any, type_: ColumnType, array: pa.Array, index: int) -> Any:
    """Return *target*, a message `Value`, with one value of *array*."""
    if not array[index].is_valid:
        return target
    kind = type_.kind
    if kind is Kind.DECIMAL:
        target.decimal_value.value = array[index].as_py()
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        us = array[index].value
        if YEAR_1_US <= us < YEAR_10000_US:
            target.timestamp_value.SetInParent()
            target.timestamp_value.seconds, rest = divmod(us, 1_000_000)
            target.timestamp_value.nanos = rest * 1000
        else:
            target.string_value = plain_texts(array.slice(index, 1), type_)[0].as_py()
    elif kind in (Kind.DATE, Kind.TIME):
        setattr(target, FIELDS[kind], plain_texts(array.slice(index, 1), type_)[0].as_py())
    else:
        setattr(target, FIELDS.get(kind, "string_value"), array[index].as_py())
    return target


def serialized(found: Any) -> bytes:
    data: bytes = found.SerializeToString(deterministic=True)
    return data


def encoded(array: pa.Array, type_: ColumnType, options: ProtobufOptions = STRING) -> list[bytes]:
    written: list[bytes] = values(array, type_, options).column(len(array)).to_pylist()
    return written


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_kind_is_written_as_the_official_library_writes_it(name: str, data: st.DataObject) -> None:
    type_, strategy = COLUMNS[name]
    drawn = data.draw(st.lists(st.none() | strategy, max_size=8) | st.lists(strategy, max_size=8))
    array = pa.array([None, *drawn, None], type_.arrow).slice(1, len(drawn))
    assert encoded(array, type_) == [
        serialized(filled(message("Value"), type_, array, index)) for index in range(len(drawn))
    ]


@pytest.mark.parametrize("name", [name for name in ITEMS if not name.startswith("decimal(")])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_arrays_of_every_kind_are_written_as_the_official_library_writes_them(name: str, data: st.DataObject) -> None:
    element, strategy = ITEMS[name]
    rows = data.draw(st.lists(st.none() | st.lists(st.none() | strategy, max_size=5), max_size=5))
    items = [None if row is None else pa.array(row, element.arrow) for row in rows]
    texts = [None if row is None else f"[{', '.join(json_texts(row, element))}]" for row in items]
    wanted = []
    for row in items:
        whole = message("Value")
        if row is not None:
            whole.array_value.SetInParent()
            if element.kind is Kind.FLOAT:  # NaN is only NaN in JSON
                row = pa.array([float("nan") if item != item else item for item in row.to_pylist()], element.arrow)
            for index in range(len(row)):
                filled(whole.array_value.values.add(), element, row, index)
        wanted.append(serialized(whole))
    array = pa.array([None, *texts, None], pa.string()).slice(1, len(rows))
    assert encoded(array, column(Kind.ARRAY, element=element)) == wanted


@settings(max_examples=20, deadline=None)
@given(data=st.data(), envelope=st.sampled_from(["wrapped", "bare"]), flags=st.tuples(*[st.booleans()] * 5))
def test_whole_messages_are_written_as_the_official_library_writes_them(
    data: st.DataObject, envelope: str, flags: tuple[bool, ...]
) -> None:
    batch, rows = drawn_batch(data)
    names = ("updated", "mvcc_timestamp", "key_in_value", "topic_in_value", "diff")
    chosen = dict(zip(names, flags, strict=True))
    chosen["diff"] &= envelope == "wrapped"
    context = EncoderContext(changefeed="c", envelope=Envelope(name=envelope, **chosen), options=STRING)
    found = ProtobufEncoder(context).encode(batch, topic="t")
    key_types = {each.name: each.type for each in batch.schema.key_columns}
    types = {each.name: each.type for each in batch.schema.columns}

    def put(target: Any, structs: pa.StructArray, named: dict[str, ColumnType], index: int) -> None:
        for place, (name, type_) in enumerate(named.items()):
            filled(target[name], type_, structs.field(place), index)

    for index, (_, after, before, wall, logical) in enumerate(rows):
        keys, value = message("Key"), message("Message")
        put(keys.key, batch.column("key"), key_types, index)
        if envelope == "wrapped":
            part = metadata = value.wrapped
            for image, name in ((after, "after"), (before if chosen["diff"] else None, "before")):
                if image is not None:
                    getattr(part, name).SetInParent()
                    put(getattr(part, name).values, batch.column(name), types, index)
        else:
            metadata = value.bare.__crdb__
            if after is not None:
                put(value.bare.values, batch.column("after"), types, index)
            else:
                for name in types:
                    value.bare.values[name].SetInParent()
                put(value.bare.values, batch.column("key"), key_types, index)
        time = str(Timestamp(wall, logical))
        if chosen["updated"]:
            metadata.updated = time
        if chosen["mvcc_timestamp"]:
            metadata.mvcc_timestamp = time
        if chosen["key_in_value"]:
            metadata.key.CopyFrom(keys)
        if chosen["topic_in_value"]:
            metadata.topic = "t"
        (value.wrapped if envelope == "wrapped" else value.bare).SetInParent()
        assert found.key[index].as_py() == serialized(keys)
        assert found.value[index].as_py() == serialized(value)


@pytest.mark.parametrize("kind", [Kind.TIMESTAMP, Kind.TIMESTAMPTZ])
@pytest.mark.parametrize(
    ("us", "text"),
    [
        (2**63 - 1, "infinity"),
        (-(2**63), "-infinity"),
        (YEAR_10000_US, "10000-01-01T00:00:00"),
        (YEAR_1_US - 1, "0000-12-31T23:59:59.999999"),
    ],
)
def test_timestamps_that_protobuf_lacks_are_refused_or_written_as_text(kind: Kind, us: int, text: str) -> None:
    type_ = column(kind)
    array = pa.array([None, 0, us, YEAR_1_US, us, YEAR_10000_US - 1], type_.arrow)
    with pytest.raises(NoRepresentationError, match=f"no '{text}Z?'; set protobuf_special_values = 'string'") as error:
        encoded(array, type_, ProtobufOptions())
    assert error.value.row == 2
    assert encoded(array, type_) == [
        serialized(filled(message("Value"), type_, array, index)) for index in range(len(array))
    ]


def test_arrays_of_several_dimensions_are_refused_or_written_as_json() -> None:
    type_ = column(Kind.ARRAY, element=column(Kind.INT))
    array = pa.array(["[1]", None, "[[1, 2], [3, 4]]"])
    with pytest.raises(NoRepresentationError, match="several dimensions; set protobuf_arrays = 'json'") as error:
        encoded(array, type_)
    assert error.value.row == 2
    found = encoded(array, type_, ProtobufOptions(protobuf_arrays="json"))
    assert [message("Value", data).string_value for data in found] == ["[1]", "", "[[1, 2], [3, 4]]"]
