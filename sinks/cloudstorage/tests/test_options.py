from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_cloudstorage.options import CloudStorageOptions

from cdc_core import MB, OptionError, parse_options

OWNER = "sink 'cloudstorage'"


def test_the_defaults_are_those_of_cockroachdb() -> None:
    options = parse_options(CloudStorageOptions, {}, owner=OWNER)
    assert options == CloudStorageOptions()
    assert (options.partition_format, options.file_size, options.compression) == ("daily", 16 * MB, "none")
    assert options.topic_prefix == ""


def test_options_may_be_text_as_in_a_uri() -> None:
    texts = {"partition_format": "flat", "file_size": "64KB", "compression": "GZIP", "topic_prefix": "eu-"}
    options = parse_options(CloudStorageOptions, texts, owner=OWNER)
    assert options.partition_format == "flat"
    assert options.file_size == 65536
    assert options.compression == "gzip"
    assert options.topic_prefix == "eu-"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"file_sise": "1MB"}, "sink 'cloudstorage' has no option 'file_sise'; did you mean 'file_size'?"),
        (
            {"partition_format": "weekly"},
            "sink 'cloudstorage': option 'partition_format' is 'weekly': must be one of daily, hourly, flat",
        ),
        ({"compression": "lz4"}, "sink 'cloudstorage': option 'compression' is 'lz4': must be one of none, gzip, zstd"),
        (
            {"aws_server_kms_id": "arn:aws:kms:key"},
            "sink 'cloudstorage': AWS_SERVER_KMS_ID requires AWS_SERVER_ENC_MODE=aws:kms",
        ),
        ({"file_size": "0"}, "sink 'cloudstorage': option 'file_size' must be at least 1 byte"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options(CloudStorageOptions, values, owner=OWNER)
    assert str(refused.value) == sentence
