from __future__ import annotations

import pytest
from cdc_rangefeed_postgres.relations import relation_columns
from cdc_rangefeed_postgres.types import PgColumn
from cdc_testing.decoding import ID, PLAIN, RELATION, T, V, decoder_of, transaction, version_of
from cdc_testing.pgmessages import insert, log, relation

from cdc_core import RetryableRangefeedError

_WIDER = version_of(ID, V, PgColumn("n", 23), number=2)


def test_rows_have_the_version_that_was_announced_before_them() -> None:
    decoder = decoder_of(versions={T: [PLAIN, _WIDER]})
    messages = log(
        *transaction(RELATION, insert(T, "1", "a")),
        *transaction(RELATION, insert(T, "2", "b")),
        *transaction(relation(T, _WIDER.columns), insert(T, "3", "c", "9")),
    )
    assert [(batch.schema.version, len(batch)) for batch in decoder.decode(messages)] == [(1, 2), (2, 1)]
    (later,) = decoder.decode(log(*transaction(insert(T, "4", "d", "9"))))
    assert later.schema.version == 2


def test_versions_are_searched_forward_only() -> None:
    back = version_of(ID, V, number=3)
    shapes = [RELATION, relation(T, _WIDER.columns), RELATION]
    rows = [insert(T, "1", "a"), insert(T, "1", "a", "1"), insert(T, "1", "a")]
    messages = [message for pair in zip(shapes, rows, strict=True) for message in transaction(*pair)]
    batches = decoder_of(versions={T: [PLAIN, _WIDER, back]}).decode(log(*messages))
    assert [batch.schema.version for batch in batches] == [1, 2, 3]


def test_a_version_that_is_not_listed_is_retryable() -> None:
    changes = transaction(relation(T, _WIDER.columns), insert(T, "1", "a", "1"))
    with pytest.raises(RetryableRangefeedError, match=r"the schema of table .* changed while its log was read"):
        list(decoder_of(versions={T: [PLAIN]}).decode(log(*changes)))


def test_rows_of_a_table_without_versions_are_passed_over() -> None:
    changes = transaction(relation(T, _WIDER.columns), insert(T, "1", "a", "1"))
    assert list(decoder_of(versions={}).decode(log(*changes))) == []


def test_versions_announced_before_the_slice_need_not_be_listed() -> None:
    decoder = decoder_of(versions={T: [_WIDER]}, start_lsn=100)
    before = transaction(RELATION, insert(T, "1", "a"), lsn=50)
    assert not list(decoder.decode(log(*before)))
    wider = relation(T, _WIDER.columns)
    assert len(list(decoder.decode(log(*before, wider, *transaction(insert(T, "1", "a", "1")))))) == 1


def test_a_relation_message_describes_its_table() -> None:
    shown = relation_columns(relation(T, [ID, PgColumn("é", 1700, 655366)], name="ü", identity="f"))
    assert (shown.relid, shown.namespace, shown.name, shown.replica_identity) == (T, "public", "ü", "f")
    assert shown.columns == (ID, PgColumn("é", 1700, 655366, False))
