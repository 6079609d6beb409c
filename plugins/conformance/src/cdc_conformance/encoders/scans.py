"""What a format of scans says of all else."""

from __future__ import annotations

import pytest

from cdc_conformance.encoders.rig import EncoderRig, body_of
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_core import EncodeError, Op, Timestamp

__all__ = ["Scans"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_KEY = 47_110_815


class Scans:
    """Asked of encoders that are registered with `scans_only`."""

    def test_a_format_of_scans_refuses_all_else(self, rig: EncoderRig, topic: str) -> None:
        """With `scans_only`, a deleted row and a resolved mark raise EncodeError, the first with table and key.

        The engine does not ask for them, but whoever reads a file must not take a deleted row for one that is there.
        """
        if not rig.registration.scans_only:
            return
        batch = rows(_ORDERS, [Change({"id": 1}, op=Op.SCAN), Change({"id": _KEY}, op=Op.DELETE)])
        for form in rig.some():
            encoder = rig.unguarded(form)
            with pytest.raises(EncodeError) as refused:
                body_of(encoder, [batch], topic) if form.output == "files" else encoder.encode(batch, topic=topic)
            for what, word in (("table", str(_ORDERS.name)), ("key", str(_KEY))):
                assert word in str(refused.value), f"{form}: the error lacks the {what} '{word}': {refused.value}"
            with pytest.raises(EncodeError):
                encoder.encode_resolved(topic, Timestamp(1))
