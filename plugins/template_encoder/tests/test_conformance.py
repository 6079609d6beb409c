"""The conformance of the encoder."""

from cdc_conformance import EncoderConformance


class TestTemplate(EncoderConformance):
    encoder = "template"
    capabilities = frozenset({"json_null"})
