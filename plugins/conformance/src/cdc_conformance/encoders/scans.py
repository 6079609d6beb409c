"""Promises about formats that are for scans only."""

from __future__ import annotations

import pytest

from cdc_conformance.encoders.conditions import SCANS_ONLY
from cdc_conformance.encoders.rig import EncoderRig, body_of
from cdc_conformance.promises import applies_if
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import EncodeError, Op, TerminalError, Timestamp

__all__ = ["Scans"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_KEY = 47_110_815


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
                body_of(encoder, [batch], topic) if form.output == "files" else encoder.encode(batch, topic=topic)
            for what, word in (("table", str(_ORDERS.name)), ("key", str(_KEY))):
                assert word in str(refused.value), f"{form}: the error lacks the {what} '{word}': {refused.value}"
            with pytest.raises(TerminalError):
                encoder.encode_resolved(topic, Timestamp(1))
