"""Envelopes: what each of them has a place for, and that nothing else depends on their names."""

from __future__ import annotations

import ast
import json
import typing
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, TEXT, Change, rows, table

from cdc_core import ContractError, DeleteForm, Envelope, Op, OptionError, RowBatch, RowPlace, Timestamp
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.envelope import ENVELOPE_OPTIONS, ENVELOPES

ROOT = Path(__file__).parents[1]
ORDERS = table("orders", {"id": INT8, "note": TEXT})
EVERYTHING: dict[str, typing.Any] = dict.fromkeys(ENVELOPE_OPTIONS, True)
METADATA: dict[str, typing.Any] = {name: True for name in ENVELOPE_OPTIONS if name != "diff"}
Json = dict[str, typing.Any]


def members(value: typing.Any) -> Json | None:
    assert value is None or isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("name", "row", "delete"),
    [
        ("wrapped", RowPlace.MEMBER, DeleteForm.NULL_ROW),
        ("bare", RowPlace.MESSAGE, DeleteForm.KEY_AND_NULLS),
        ("row", RowPlace.MESSAGE, DeleteForm.TOMBSTONE),
        ("key_only", RowPlace.NOWHERE, DeleteForm.TOMBSTONE),
        ("enriched", RowPlace.MEMBER, DeleteForm.NULL_ROW),
        ("cloudevents", RowPlace.MEMBER, DeleteForm.NULL_ROW),
    ],
)
def test_an_envelope_has_a_place_for_rows_and_a_form_of_deletes(name: str, row: RowPlace, delete: DeleteForm) -> None:
    assert (Envelope(name=name).row, Envelope(name=name).delete) == (row, delete)


def test_a_changefeed_can_have_every_envelope() -> None:
    assert set(typing.get_args(typing.get_type_hints(ChangefeedOptions)["envelope"])) == set(ENVELOPES)


def test_members_are_images_and_then_metadata_in_alphabetical_order() -> None:
    envelope = Envelope(**EVERYTHING)
    assert envelope.images == ("after", "before")
    assert envelope.metadata == ("key", "mvcc_timestamp", "topic", "updated")
    assert (Envelope().images, Envelope().metadata) == (("after",), ())
    assert Envelope(name="bare", **METADATA).images == ()


@pytest.mark.parametrize(
    ("name", "options", "fit"),
    [
        ("wrapped", [], ""),
        ("bare", ["diff"], "'wrapped' or 'enriched' or 'cloudevents'"),
        ("row", ENVELOPE_OPTIONS, "'wrapped' or 'bare' or 'enriched' or 'cloudevents'"),
        ("key_only", ENVELOPE_OPTIONS, "'wrapped' or 'bare' or 'enriched' or 'cloudevents'"),
    ],
)
def test_an_option_without_a_place_is_refused_with_the_envelopes_that_fit(
    name: str, options: list[str], fit: str
) -> None:
    for option in ENVELOPE_OPTIONS:
        given: Json = {option: True}
        envelope = Envelope(name=name, **given)
        if option not in options:
            envelope.check("encoder 'x'")
            continue
        with pytest.raises(OptionError) as refused:
            envelope.check("encoder 'x'")
        fitting = "'wrapped' or 'enriched' or 'cloudevents'" if option == "diff" else fit
        assert str(refused.value) == f"encoder 'x': envelope '{name}' cannot hold '{option}'; use {fitting}"


def test_metadata_is_beside_the_row_or_in_one_object() -> None:
    metadata = {"resolved": "5.0000000000"}
    assert Envelope().placed(metadata, str) == metadata
    for name in ("bare", "row", "key_only"):
        assert Envelope(name=name).placed(metadata, str) == {"__crdb__": str(metadata)}


def test_a_message_is_split_into_row_row_before_and_metadata() -> None:
    row: Json = {"id": 1, "note": None}
    wrapped, bare = Envelope(**EVERYTHING), Envelope(name="bare", **METADATA)
    message: Json = {"after": row, "before": None, "key": [1]}
    assert wrapped.split(message, members) == (row, None, {"key": [1]})
    assert wrapped.split({"after": None, "before": row}, members) == (None, row, {})
    assert bare.split({**row, "__crdb__": {"key": [1]}}, members) == (row, None, {"key": [1]})
    assert Envelope(name="row").split(row, members) == (row, None, {})


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_resolved_mark_is_split_into_its_metadata(name: str) -> None:
    envelope = Envelope(name=name)
    mark: Json = envelope.placed({"resolved": "5.0000000000"}, dict)
    assert envelope.split(mark, members)[2] == {"resolved": "5.0000000000"}


def column(batch: RowBatch, member: str) -> pa.Array:
    found = Envelope().column(batch, member)
    assert found is not None
    return found


def test_members_have_their_columns() -> None:
    changes = [
        Change({"id": 1, "note": "b"}, op=Op.UPDATE, before={"id": 1, "note": "a"}, mvcc=Timestamp(7)),
        Change({"id": 2}, op=Op.DELETE, before={"id": 2, "note": None}),
    ]
    batch = rows(ORDERS, changes, before=True, mvcc=True)
    for member in ("after", "before", "key", "updated"):
        assert column(batch, member).equals(batch.column(member))
    assert column(batch, "mvcc_timestamp").equals(batch.column("mvcc"))
    unknown = rows(ORDERS, changes, before=True)
    assert column(unknown, "mvcc_timestamp").equals(unknown.column("updated"))


def test_only_inserted_and_scanned_rows_may_lack_the_row_before() -> None:
    new = rows(ORDERS, [Change({"id": 1}, op=op) for op in (Op.INSERT, Op.SCAN)])
    assert Envelope(diff=True).column(new, "before") is None
    assert Envelope(diff=True).column(rows(ORDERS, []), "before") is None
    for op in (Op.UPDATE, Op.DELETE):
        with pytest.raises(ContractError, match=r"table public\.orders: .*'before'.*'diff'"):
            Envelope(diff=True).column(rows(ORDERS, [Change({"id": 1}, op=op)]), "before")


def test_an_envelope_is_json_and_back() -> None:
    envelope = Envelope(name="bare", updated=True)
    assert envelope.to_json()["envelope"] == "bare"
    assert Envelope.from_json(envelope.to_json()) == envelope
    enriched = Envelope(name="enriched", enriched_properties=("schema", "source"))
    assert Envelope.from_json(json.loads(json.dumps(enriched.to_json()))) == enriched
    assert "enriched_properties" not in envelope.to_json()


def test_an_enriched_message_has_its_timestamps_in_the_source() -> None:
    envelope = Envelope(name="enriched", enriched_properties=("source",), **EVERYTHING)
    envelope.check("encoder 'x'")
    assert envelope.images == ("after", "before")
    assert envelope.metadata == ("key", "op", "source", "topic", "ts_ns")
    assert envelope.source_times == ("mvcc_timestamp", "ts_hlc", "ts_ns")
    source: Json = {"ts_hlc": "5.0000000000", "mvcc_timestamp": "4.0000000000", "ts_ns": 5}
    metadata = envelope.split({"after": None, "before": None, "op": "d", "source": source}, members)[2]
    assert (metadata["updated"], metadata["mvcc_timestamp"]) == ("5.0000000000", "4.0000000000")
    assert Envelope(name="enriched").metadata == ("op", "ts_ns")


@pytest.mark.parametrize("option", ["updated", "mvcc_timestamp"])
def test_a_timestamp_of_an_enriched_message_requires_the_source(option: str) -> None:
    given: Json = {option: True}
    with pytest.raises(OptionError, match=f"has '{option}' in its source; set enriched_properties = 'source'$"):
        Envelope(name="enriched", **given).check("encoder 'x'")


def test_enriched_properties_require_the_envelope() -> None:
    with pytest.raises(OptionError, match=r"'enriched_properties' requires envelope 'enriched'; remove it$"):
        Envelope(enriched_properties=("source",)).check("encoder 'x'")


def modules() -> Iterator[Path]:
    """Yield the modules of encoders, decoders, sinks, sources and the conformance kit."""
    for kind in ("encoders", "sinks", "plugins"):
        yield from sorted((ROOT / kind).glob("*/src/**/*.py"))


def names_compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield comparisons with the names of envelopes, and dicts with names as keys, such as `{"bare": …}[name]`."""
    for node in ast.walk(tree):
        operands: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif isinstance(node, ast.Dict):
            operands = list(node.keys)
        for operand in operands:
            for part in ast.walk(operand) if operand is not None else ():
                if isinstance(part, ast.Constant) and part.value in ENVELOPES:
                    yield part.lineno, part.value


def test_no_plugin_compares_the_name_of_an_envelope() -> None:
    paths = list(modules())
    assert len(paths) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in paths
        for line, name in names_compared(ast.parse(path.read_text()))
    ]
    assert found == []


def test_a_comparison_with_a_name_is_found() -> None:
    for text in ('a.name == "bare"', 'name in ("row", "key_only")', '{"wrapped": 1}[name]'):
        assert list(names_compared(ast.parse(text)))
    assert not list(names_compared(ast.parse('register(envelopes={"wrapped", "bare"})')))
