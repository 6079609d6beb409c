"""Conditions of promises: what an encoder must have registered for them to apply."""

from __future__ import annotations

from typing import Any, cast

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Condition
from cdc_core import EncoderRegistration

__all__ = ["CHANGES", "COMPRESSES", "DECODER", "FILES", "MESSAGES", "REKEYS", "SCANS_ONLY", "registered"]


def registered(cls: type[Any]) -> EncoderRegistration:
    """Return the registration of the encoder that a test class names."""
    return cast(EncoderRegistration, registration_of(cls, "encoder"))


DECODER = Condition(lambda cls: bool(registered(cls).decoder), "the encoder registers no decoder")
FILES = Condition(lambda cls: "files" in registered(cls).outputs, "the encoder writes no files")
MESSAGES = Condition(lambda cls: "messages" in registered(cls).outputs, "the encoder writes no messages")
CHANGES = Condition(lambda cls: not registered(cls).scans_only, "the format is for scans only")
SCANS_ONLY = Condition(lambda cls: registered(cls).scans_only, "the format is not for scans only")
REKEYS = Condition(lambda cls: registered(cls).rekeys, "the keys of the encoder are always the primary key")
COMPRESSES = Condition(lambda cls: registered(cls).compresses, "the encoder does not compress files")
