"""The API reference explains everything that plugin authors meet: it is made from docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from itertools import pairwise

import pytest

from cdc_core import (
    Decoder,
    Destination,
    Encoder,
    EncoderContext,
    EncoderRegistration,
    FileBody,
    FunctionRegistration,
    Kind,
    Rangefeed,
    RangefeedContext,
    RangefeedRegistration,
    ResolvedSink,
    Sink,
    SinkContext,
    SinkReader,
    SinkRegistration,
    SliceInfo,
    SliceReader,
    SourceHistory,
    SourceWriter,
    StepPlanner,
)
from cdc_core.schema import ColumnType

PARTS = (
    *(Sink, ResolvedSink, Destination, SinkReader),
    *(Encoder, FileBody, Decoder),
    *(Rangefeed, StepPlanner, SliceReader, SourceHistory, SourceWriter),
)
VALUES = (
    *(SinkRegistration, EncoderRegistration, RangefeedRegistration, FunctionRegistration),
    *(SinkContext, EncoderContext, RangefeedContext, SliceInfo),
)


def fields_with_text(cls: type) -> set[str]:
    """Return the fields of a class and of its bases that a string follows, or that the docstring of the class names."""
    found: set[str] = set()
    for part in cls.__mro__[:-1]:
        (body,) = (node.body for node in ast.parse(inspect.getsource(part)).body if isinstance(node, ast.ClassDef))
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found.add(ast.unparse(field.target))
        found |= {name for name in part.__annotations__ if f"`{name}`" in (part.__doc__ or "")}
    return found


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_method_is_explained(part: type) -> None:
    methods = {name: value for name, value in vars(part).items() if not name.startswith("_") and callable(value)}
    assert [name for name, method in methods.items() if not inspect.getdoc(method)] == []


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_field_is_explained(value: type) -> None:
    plain = {"changefeed", "encoder"}  # the name says it all
    assert {field.name for field in dataclasses.fields(value)} - fields_with_text(value) - plain == set()


def test_every_kind_of_column_is_explained() -> None:
    rows = [line.split("`")[1] for line in (ColumnType.__doc__ or "").splitlines() if line.startswith("    | `")]
    assert rows == [kind.name for kind in Kind]
