"""The suite of encoders, `EncoderConformance`. Each module has one group of promises."""

from cdc_conformance.encoders.suite import EncoderConformance

__all__ = ["EncoderConformance"]
