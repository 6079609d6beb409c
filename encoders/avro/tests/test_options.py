from __future__ import annotations

import pytest
from cdc_encoder_avro.options import AvroOptions

from cdc_core import OptionError
from cdc_core.options import parse_options


def test_an_unknown_option_is_refused_with_a_proposal() -> None:
    with pytest.raises(OptionError, match="did you mean 'avro_codec'"):
        parse_options(AvroOptions, {"avro_codecs": "null"}, owner="encoder 'avro'")
