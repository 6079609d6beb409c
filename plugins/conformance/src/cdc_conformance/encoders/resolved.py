"""Promises about resolved marks, and about formats without them: those that are for scans only."""

from __future__ import annotations

import pytest

from cdc_conformance.encoders.form import CHANGES, DECODER, MESSAGES, SCANS_ONLY
from cdc_conformance.encoders.messages import written
from cdc_conformance.encoders.rig import EncoderRig, pairs_of
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import EncodeError, Op, TerminalError, Timestamp

__all__ = ["Resolved", "Scans"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_KEY = 47_110_815
_TIMES = [Timestamp(0, 1), Timestamp(1_700_000_000_123_456_789, 7), Timestamp(2**63 - 1, 2**31 - 1)]
_MARK = Timestamp(1_700_000_000_000_000_000, 1)


@applies_if(CHANGES)
class Resolved:
    """A resolved mark is a message in every partition, or a file of its own."""

    @applies_if(DECODER)
    def test_a_resolved_mark_has_the_exact_timestamp(self, rig: EncoderRig, topic: str) -> None:
        """A mark is read with its exact timestamp, including nanoseconds and logical counter.

        A later timestamp would claim that rows were delivered that are still to come.
        """
        for form in rig.some():
            for time in _TIMES:
                found = rig.decoder(form).resolved(rig.encoder(form).encode_resolved(topic, time))
                assert found == time, f"{form}: the mark of {time} is read as {found}"

    @applies_if(DECODER)
    @applies_if(MESSAGES)
    def test_a_resolved_mark_differs_from_every_row(self, rig: EncoderRig, topic: str) -> None:
        """No row is read as a mark: no delete, no tombstone, and no row with a column `resolved`."""
        text = str(_MARK)
        names = ["resolved", "after", "updated", "value", "timestamp"]
        for form in rig.full_forms(output="messages"):
            for columns in ({"resolved": TEXT}, {"id": INT8, **dict.fromkeys(names, TEXT)}):
                schema = table("marks", columns, primary_key=list(columns)[:1])
                if rig.refusal(form, schema, topic) is not None:
                    continue
                values = {name: 1 if name == "id" else text for name in columns}
                changes = [Change(values, op=op, before=values) for op in (Op.INSERT, Op.DELETE, Op.UPDATE)]
                batch = rows(schema, changes, before=True)
                for key, value in pairs_of(rig.encoder(form).encode(batch, topic=topic)):
                    found = rig.decoder(form).resolved(value)
                    assert found is None, f"{form}: the row {key!r}, {value!r} is read as the mark {found}"

    def test_the_same_resolved_mark_has_the_same_bytes(self, rig: EncoderRig, topic: str) -> None:
        """A mark always has the same bytes, before and after rows of the topic, because it may be sent twice.

        With a schema registry, the schema id of an encoder that has encoded no rows may differ.
        """
        for form in rig.some():
            batch = rows(table("orders", {"id": INT8}), [Change({"id": 1})])
            if form.output == "messages":
                rig.encoder(form).encode(batch, topic=topic)
            encoder = rig.encoder(form)
            first = encoder.encode_resolved(topic, _MARK)
            assert encoder.encode_resolved(topic, _MARK) == first, f"{form}: the second mark has other bytes"
            if form.output == "messages":
                encoder.encode(batch, topic=topic)
            assert encoder.encode_resolved(topic, _MARK) == first, f"{form}: the mark has other bytes after a row"
            assert rig.encoder(form).encode_resolved(topic, _MARK) == first, (
                f"{form}: a second encoder writes other bytes for the same mark"
            )


@applies_if(SCANS_ONLY)
class Scans:
    """Encoders that are registered with `scans_only`."""

    def test_a_scans_only_format_refuses_deletes_and_marks(self, rig: EncoderRig, topic: str) -> None:
        """A deleted row raises EncodeError, with table and key. A resolved mark raises TerminalError.

        The engine emits no marks for such a format. Readers of a file must not read a deleted row as an existing one.
        """
        batch = rows(_ORDERS, [Change({"id": 1}, op=Op.SCAN), Change({"id": _KEY}, op=Op.DELETE)])
        for form in rig.some():
            encoder = rig.unguarded(form)
            with pytest.raises(EncodeError) as refused:
                written(encoder, batch, topic, form)
            for what, word in (("table", str(_ORDERS.name)), ("key", str(_KEY))):
                assert word in str(refused.value), f"{form}: the error lacks the {what} '{word}': {refused.value}"
            with pytest.raises(TerminalError):
                encoder.encode_resolved(topic, Timestamp(1))
