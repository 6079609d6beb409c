"""Each promise of an encoder has its saboteur, and saboteurs are encoders like any other."""

from __future__ import annotations

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_conformance.promises import promises_of
from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder
from cdc_conformance.sabotage.encoders import SABOTEURS

from cdc_core.plugins.classes import load_class


def test_every_promise_has_its_saboteur_and_every_saboteur_its_promise() -> None:
    assert SABOTEURS.keys() == set(promises_of(EncoderConformance))
    targets = [registration.target for registration in SABOTEURS.values()]
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("promise", SABOTEURS)
def test_a_saboteur_is_the_reference_with_one_mistake(promise: str) -> None:
    registration = SABOTEURS[promise]
    saboteur = load_class(registration.target, owner=promise, base=ReferenceEncoder)
    assert (saboteur.__doc__ or "").strip()
    load_class(registration.decoder, owner=promise, base=ReferenceDecoder)
    load_class(registration.options, owner=promise)
