"""The rig of encoders raises real errors, and replaces a process that ended."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from cdc_conformance.encoders import messages
from cdc_conformance.encoders.rig import EncoderRig, pairs_of
from cdc_conformance.promises import DoesNotApply
from cdc_conformance.reference.encoder import REFERENCE_ENCODER
from cdc_conformance.rows import INT8, TEXT, table

from cdc_core import ConfigError, OptionError, PluginLoadError

ORDERS = table("orders", {"id": INT8, "note": TEXT})


@pytest.mark.parametrize(
    ("changes", "options", "error"),
    [
        ({"encoder": "nowhere:Encoder"}, {}, PluginLoadError),
        ({}, {"no_such_option": 1}, OptionError),
        ({}, {"service": "127.0.0.1:9"}, ConfigError),
    ],
)
def test_an_encoder_without_a_form_that_works_raises_its_error(
    changes: dict[str, Any], options: dict[str, Any], error: type[ConfigError]
) -> None:
    registration = dataclasses.replace(REFERENCE_ENCODER, **changes)
    with pytest.raises(error):
        EncoderRig(registration, options=options, outputs={"messages"}).some("diff", rows=True)


def test_a_form_that_an_encoder_does_not_write_does_not_apply() -> None:
    with pytest.raises(DoesNotApply, match="writes no files"):
        EncoderRig(REFERENCE_ENCODER, options={}, outputs={"messages"}).some(output="files")


def test_another_process_that_ended_is_reported_and_replaced() -> None:
    rig, batch = EncoderRig(REFERENCE_ENCODER, options={}, outputs={"messages"}), messages.history(ORDERS)
    form = rig.form("messages")
    messages.PEER.process.kill()
    with pytest.raises(AssertionError, match="the other process ended with exit code -9"):
        messages.pairs_of_other_process(rig.feed(form), batch, "orders")
    found = messages.pairs_of_other_process(rig.feed(form), batch, "orders")
    assert found == pairs_of(rig.encoder(form).encode(batch, topic="orders"))
