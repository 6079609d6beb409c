"""The message classes of the official library, from the fields that the encoder knows."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from cdc_encoder_protobuf.fields import MESSAGES, PACKAGE, TIMESTAMP, Field

FILE = "cdc_encoder_protobuf/changefeed.proto"
_ONEOFS = {"Message": "data", "Value": "value"}
_Type = descriptor_pb2.FieldDescriptorProto


def file_descriptor() -> Any:
    """Return the `FileDescriptorProto` of `changefeed.proto`."""
    file = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _ONEOFS:
            message.oneof_decl.add(name=_ONEOFS[name])
        for field in fields:
            _add(message, name, field)
    return file


@cache
def message_class(name: str) -> Any:
    """Return the class of the message *name*."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    """Return a pool of our own: a program may have classes that it generated from the same file."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file_descriptor())
    return pool


def _add(message: Any, owner: str, field: Field) -> None:
    added = message.field.add(name=field.name, number=field.number, label=_Type.LABEL_OPTIONAL)
    if field.form == "map":
        entry = message.nested_type.add(name=f"{field.name.capitalize()}Entry")
        entry.options.map_entry = True
        _set_type(entry.field.add(name="key", number=1, label=_Type.LABEL_OPTIONAL), "string")
        _set_type(entry.field.add(name="value", number=2, label=_Type.LABEL_OPTIONAL), field.type)
        _set_type(added, f"{owner}.{entry.name}")
    else:
        _set_type(added, field.type)
    if field.form != "single":
        added.label = _Type.LABEL_REPEATED
    if owner in _ONEOFS:
        added.oneof_index = 0


def _set_type(field: Any, type_: str) -> None:
    number = getattr(_Type, f"TYPE_{type_.upper()}", None)
    if number is not None:
        field.type = number
        return
    field.type = _Type.TYPE_MESSAGE
    field.type_name = f".{type_}" if type_ == TIMESTAMP else f".{PACKAGE}.{type_}"
