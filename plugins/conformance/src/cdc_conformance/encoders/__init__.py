"""The suite that every encoder passes, `EncoderConformance`, one module for each group of promises."""

from cdc_conformance.encoders.suite import EncoderConformance

__all__ = ["EncoderConformance"]
