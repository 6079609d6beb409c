"""What was emitted and flushed is read back exactly."""

from __future__ import annotations

from cdc_conformance.rows import EVERY_KIND, Change, rows, sample, table
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS
from cdc_core import Op, RowBatch

__all__ = ["Values"]

_KINDS = table("kinds", EVERY_KIND)


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
        batch = rows(ORDERS, [Change({"id": number, "note": text}) for number, text in enumerate(texts)])
        _writes_exactly(readable, batch, "a text outside ASCII was changed")

    def test_deletes_come_back(self, readable: SinkRig) -> None:
        """The deletion of a row is delivered. A consumer that never learns of it keeps the row for ever."""
        batch = rows(
            ORDERS, [Change({"id": 1, "note": "a"}), Change({"id": 2, "note": "b"}), Change({"id": 1}, op=Op.DELETE)]
        )
        _writes_exactly(readable, batch, "a deletion did not arrive")

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
