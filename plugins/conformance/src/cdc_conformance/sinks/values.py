"""What was emitted and flushed is read back exactly."""

from __future__ import annotations

import pytest

from cdc_conformance.rows import EVERY_KIND, TEXT, Change, rows, sample, table
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS
from cdc_conformance.sinks.watching import failure_of
from cdc_core import CdcError, Op, RowBatch

__all__ = ["Values"]

_KINDS = table("kinds", EVERY_KIND)
_KEYED = table("keyed", {"id": TEXT, "note": TEXT})


class Values:
    """Promises about the contents of rows."""

    def test_every_value_comes_back(self, readable: SinkRig) -> None:
        """Rows with a column of every kind are emitted and flushed; a consumer then gets every value as it was.

        A sink hands on the encoder's bytes. When this fails, look for text made of them and back, for separators that
        values may hold too, and for columns of its own that are too narrow.
        """
        batch = rows(
            _KINDS,
            [Change({"id": number} | _values(number)) for number in range(40)],
        )
        _writes_exactly(readable, batch, "a value of some column was changed on its way")

    def test_nulls_come_back(self, readable: SinkRig) -> None:
        """A row in which everything but the key is null is delivered as such: a null is no empty text and no zero."""
        batch = rows(_KINDS, [Change({"id": number}) for number in range(3)])
        _writes_exactly(readable, batch, "a row full of nulls was left out or changed")

    def test_unicode_comes_back(self, readable: SinkRig) -> None:
        """Text of any alphabet, also outside the basic plane, is delivered in the same characters, in keys too."""
        texts = ("Grüße", "Ελλάδα", "中文", "\u202eعربى", "🐘👩\u200d🚀", "e\u0301", "\u2028\u0085\ufeff")
        batch = rows(_KEYED, [Change({"id": text, "note": text}) for text in texts])
        _writes_exactly(readable, batch, "a text outside ASCII was changed")

    def test_keys_come_back_whole(self, readable: SinkRig) -> None:
        """Keys with separators, line ends and blanks, and long ones arrive as they were.

        A consumer tells rows apart by their keys, so a key that is cut or replaced is another row. One that is too long
        for the destination may be refused by a CdcError. Look for keys that become names, columns or headers.
        """
        odd = ("", " ", "a b", "a,b", "a/b", "a.b", "a\nb", "a\\b", '"', "%2F", "a", "A")
        batch = rows(_KEYED, [Change({"id": key, "note": "odd"}) for key in odd])
        _writes_exactly(readable, batch, "a key was changed")
        long = rows(_KEYED, [Change({"id": f"{'k' * 300}{end}", "note": "long"}) for end in "ab"])
        error = failure_of(lambda: readable.write(long, step=1))
        if error is None:
            missing = readable.read().missing(readable.rows(long))
            assert not missing, f"two keys of 301 characters were taken, so they must be read back whole, but {missing}"
        else:
            assert isinstance(error, CdcError), f"a key that is too long must be refused by a CdcError, not {error!r}"

    def test_deletes_come_back(self, readable: SinkRig) -> None:
        """The deletion of a row is delivered. A consumer that never learns of it keeps the row for ever."""
        batch = rows(
            ORDERS, [Change({"id": 1, "note": "a"}), Change({"id": 2, "note": "b"}), Change({"id": 1}, op=Op.DELETE)]
        )
        _writes_exactly(readable, batch, "a deletion did not arrive")

    def test_scanned_and_updated_rows_come_back(self, readable: SinkRig) -> None:
        """Rows of the initial scan and updates are delivered like inserted rows: what was done is the encoder's affair.

        Look for a table of operations that lacks one.
        """
        changes = [Change({"id": number, "note": op.name}, op=op) for number, op in enumerate((Op.SCAN, Op.UPDATE))]
        _writes_exactly(readable, rows(ORDERS, changes), "a scanned or updated row did not arrive")

    def test_tombstones_come_back(self, readable: SinkRig) -> None:
        """In an envelope without a place for deletions a deleted row is a key whose value is None; it is delivered.

        Compaction and consumers delete by it. None is not empty: look for `if value`, and for what stands for None.
        """
        rig = readable
        takes = rig.registration.envelopes
        if rig.registration.output == "files":
            pytest.skip("the sink takes files, in which there are no tombstones")
        for envelope in ("row", "key_only"):
            rig.options |= {"envelope": envelope, "updated": False}
            goes = failure_of(lambda: rig.job().open_encoder().check([])) is None
            if goes and (takes is None or envelope in takes):
                break
        else:
            pytest.skip("sink and encoder, with the options given here, go together in no envelope with tombstones")
        changes = [
            Change({"id": number, "note": "a"}, op=Op.DELETE if number % 2 else Op.INSERT) for number in range(6)
        ]
        _writes_exactly(rig, rows(ORDERS, changes), "a tombstone did not arrive as a key without a value")

    def test_large_values_come_back(self, readable: SinkRig, large_value_bytes: int) -> None:
        """A value of `large_value_bytes` arrives whole. What a destination cannot take must be refused, not cut."""
        text = "".join(f"{number:07} " for number in range(large_value_bytes // 8))
        batch = rows(ORDERS, [Change({"id": 1, "note": text}), Change({"id": 2, "note": "small"})])
        _writes_exactly(readable, batch, "a large value was cut or left out")


def _values(number: int) -> dict[str, object]:
    return {name: sample(type_, number) for name, type_ in EVERY_KIND.items() if name != "id"}


def _writes_exactly(rig: SinkRig, batch: RowBatch, fault: str) -> None:
    rig.start(batch.schema)
    rig.write(batch)
    missing = rig.read().missing(rig.rows(batch))
    assert not missing, f"what was emitted and flushed must be read back exactly, but {fault}: {missing}"
