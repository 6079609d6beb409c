"""The suite of sinks: what an author must override, what does not apply, and what a consumer sees after a crash."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from cdc_conformance.reference.sink import REFERENCE_SINK, ReferenceReader
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_conformance.sinks.rig import AT, ORDERS, SinkRig, versions
from cdc_conformance.sinks.seen import Row, Seen, SeenMessage, rows_of

from cdc_core import Endpoint, StoredMessage, Timestamp
from cdc_core.config.parts import Parts

pytest_plugins = ["pytester"]

MODULE = """
import dataclasses
import pytest
from cdc_conformance import SinkConformance
from cdc_conformance.reference.sink import REFERENCE_SINK

class TestIt(SinkConformance):
    sink = {sink}
    {more}
"""
URI = """
    @pytest.fixture
    def sink_uri(self, tmp_path):
        return f"reference://{tmp_path}"
"""


@pytest.fixture
def rig(tmp_path: Path) -> SinkRig:
    uri = f"reference://{tmp_path}/out"
    return SinkRig(REFERENCE_SINK, uri=uri, format="json", options={"partitions": 2}, read_back=ReferenceReader)


def test_a_suite_without_a_place_says_what_to_override(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE.format(sink="REFERENCE_SINK", more=""))
    result = pytester.runpytest_inprocess("-k", "test_flush_counts_messages")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*override the fixture sink_uri: return the URI of a place that is new for each test*"]
    )


def test_without_a_reader_promises_that_need_one_do_not_apply(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE.format(sink="dataclasses.replace(REFERENCE_SINK, reader='')", more=URI))
    result = pytester.runpytest_inprocess(
        "--cdc-report", "report.json", "-k", "test_flush_counts_messages or test_unicode_arrives_unchanged"
    )
    result.assert_outcomes(passed=1)
    (suite,) = json.loads((pytester.path / "report.json").read_text())["suites"]
    outcomes = {promise["name"]: (promise["outcome"], promise["reason"]) for promise in suite["promises"]}
    assert outcomes["test_unicode_arrives_unchanged"] == (
        "not_declared",
        "the sink registers no reader, and read_back is not overridden",
    )


def test_parameters_replace_those_with_another_spelling(rig: SinkRig) -> None:
    rig.uri += f"{'&' if '?' in rig.uri else '?'}PARTITIONS=3"
    rig.options.clear()
    assert rig.feed().sink.values["partitions"] == "3"
    assert rig.feed(parameters={"partitions": "4"}).sink.values["partitions"] == "4"


def test_a_row_with_a_changed_value_is_not_recognized(rig: SinkRig) -> None:
    rig.start(ORDERS)
    rig.write(rows(ORDERS, [Change({"id": 1, "note": "a"})]))
    rig.watch(ORDERS)  # forgets what was written
    rig.expect(rows(ORDERS, [Change({"id": 1, "note": "b"})]))
    seen = rig.read()
    assert seen.rows == []
    assert '"note": "a"' in seen.unknown[0].text


def test_marks_are_recognized_even_if_they_were_not_expected(rig: SinkRig) -> None:
    rig.start(ORDERS)
    rig.write(versions([1]))
    rig.open_resolved_sink().emit_resolved(AT)
    assert rig.read().marks == [(("orders", 0), AT), (("orders", 1), AT)]


def test_a_process_dies_without_closing_and_its_flushed_rows_stay(rig: SinkRig) -> None:
    rig.start(ORDERS)
    first, second = versions([1]), versions([2])
    rig.crash_after(*rig.calls(first), "flush", *rig.calls(second, step=1))
    assert rig.read().rows == rig.rows(first)


def test_an_error_in_the_other_process_is_reported_with_its_traceback(rig: SinkRig) -> None:
    rig.start(ORDERS)
    rig.uri = rig.uri.removesuffix("/out") + "/out/orders/0.lines/out"
    with pytest.raises(AssertionError, match=r"(?s)status 1\).*RetryableSinkError.*Not a directory"):
        rig.crash_after(versions([1]), "flush")


def test_without_another_process_the_sink_is_abandoned(tmp_path: Path) -> None:
    rig = SinkRig(
        dataclasses.replace(REFERENCE_SINK),
        uri=f"reference://{tmp_path}/out",
        format="json",
        options={},
        read_back=ReferenceReader,
        other_processes=False,
    )
    rig.start(ORDERS)
    batch = versions([1, 2])
    rig.crash_after(*rig.calls(batch), "flush")
    assert sorted(rig.read().rows, key=str) == sorted(rig.rows(batch), key=str)


@pytest.mark.parametrize("forced", [frozenset(), frozenset({"key_in_value"})], ids=["with-keys", "keys-in-values"])
def test_messages_may_lack_keys_only_where_values_always_have_them(tmp_path: Path, forced: frozenset[str]) -> None:
    registration = dataclasses.replace(REFERENCE_SINK, forced=forced)
    rig = SinkRig(registration, uri=f"reference://{tmp_path}/out", format="json", options={}, read_back=None)
    rig.watch(ORDERS)
    batch = versions([1, 2])
    rig.expect(batch)
    values = Parts(rig.feed()).open_encoder().encode(batch, topic="orders").value.to_pylist()
    seen = Seen(rig.matcher.match(StoredMessage(topic="orders", key=None, value=value) for value in values))
    assert bool(seen.missing(rig.rows(batch))) is (not forced)


def row(key: int, at: int) -> Row:
    return Row(topic="t", key=(key,), updated=Timestamp(at))


def seen(*found: tuple[int, int], endpoint: Endpoint = ("t", 0)) -> Seen:
    return Seen(SeenMessage(endpoint=endpoint, row=row(key, at)) for key, at in found)


def test_rows_are_identified_by_topic_key_and_time() -> None:
    batch = rows(table("t", {"id": INT8}), [Change({"id": 1}), Change({"id": 2}, updated=Timestamp(7, 3))])
    assert rows_of(batch, topic="t")[1] == Row(topic="t", key=(2,), updated=Timestamp(7, 3))


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([], ""),
        ([(1, 1), (1, 2), (2, 1)], ""),
        ([(1, 1), (1, 2), (1, 1), (1, 2), (1, 3)], ""),  # a repetition from an earlier point
        ([(1, 2), (1, 1)], "the row of topic 't' with key (1,) updated 1.0000000000 comes after"),
        ([(1, 1), (1, 3), (1, 1), (1, 2)], "the row of topic 't' with key (1,) updated 2.0000000000 comes after"),
    ],
)
def test_an_older_version_may_follow_only_when_it_was_there_before(
    found: Sequence[tuple[int, int]], fault: str
) -> None:
    assert seen(*found).out_of_order().startswith(fault)
    assert bool(seen(*found).out_of_order()) == bool(fault)


def test_endpoints_have_no_common_order() -> None:
    both = Seen([*seen((1, 2)).messages, *seen((1, 1), endpoint=("t", 1)).messages])
    assert both.out_of_order() == ""
    assert [message.row for message in both.at(("t", 1))] == [row(1, 1)]
    assert len(both.at((None, None))) == 2


def test_missing_and_repeated_rows_are_named() -> None:
    found = seen((1, 1), (2, 1), (1, 1))
    assert found.missing([row(1, 1), row(2, 1)]) == ""
    assert found.missing([row(3, 1), row(1, 1)]).startswith("1 of 2 rows are missing, the first is the row of")
    assert found.repeated() == f"{row(1, 1)} arrived 2 times"
    assert seen((1, 1), (1, 2)).repeated() == ""


def test_missing_rows_are_reported_with_something_that_was_never_emitted() -> None:
    found = Seen([SeenMessage(endpoint=("t", 0), text="key b'1' value b'cut'")])
    assert found.missing([row(1, 1)]).endswith("something arrived that was never emitted: key b'1' value b'cut'")
    assert found.unknown == list(found.messages)
