"""Every promise of encoders has a saboteur."""

from __future__ import annotations

import dataclasses

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_conformance.promises import promises_of
from cdc_conformance.reference.encoder import REFERENCE_ENCODER, ReferenceDecoder, ReferenceEncoder
from cdc_conformance.sabotage.encoders import SABOTEURS

from cdc_core.plugins.classes import load_class


def test_every_promise_has_one_saboteur() -> None:
    assert SABOTEURS.keys() == set(promises_of(EncoderConformance))


@pytest.mark.parametrize("promise", SABOTEURS)
def test_a_saboteur_is_a_documented_reference_encoder(promise: str) -> None:
    registration = SABOTEURS[promise]
    assert registration.summary
    assert registration != dataclasses.replace(REFERENCE_ENCODER, summary=registration.summary)
    load_class(registration.encoder, owner=promise, base=ReferenceEncoder)
    load_class(registration.decoder, owner=promise, base=ReferenceDecoder)
    load_class(registration.options, owner=promise)
