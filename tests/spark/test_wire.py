from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.masking import is_secret_name
from cdc_core.spark.runner import Runner
from cdc_core.spark.wire import require_encryption, wire_settings

ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("spark", "settings"),
    [
        ({"master": "local[2]", "spark.authenticate": "false"}, {}),
        ({"master": "yarn"}, ENCRYPTED),
        ({"master": "k8s://https://host:6443"}, ENCRYPTED),
        ({"master": "yarn", "spark.authenticate": "false"}, {}),
        ({"master": "spark://host:7077", "spark.authenticate": "true"}, ENCRYPTED),
        ({"master": "spark://host:7077", "spark.authenticate": "false"}, {}),
    ],
)
def test_traffic_is_encrypted_where_there_is_a_secret(spark: Mapping[str, str], settings: Mapping[str, str]) -> None:
    require_encryption(spark)
    assert wire_settings(spark) == settings


@pytest.mark.parametrize("spark", [{}, {"master": "local[2]"}, {"master": "local-cluster[2,1,1024]"}])
def test_an_application_on_one_host_has_a_secret_of_its_own_that_no_command_line_shows(
    spark: Mapping[str, str],
) -> None:
    first, second = (wire_settings(spark).items() - ENCRYPTED.items() for _ in range(2))
    [(name, secret)], [(_, other)] = first, second
    assert (name, is_secret_name(name), len(secret)) == ("spark.authenticate.secret", True, 64)
    assert secret != other


def test_a_standalone_cluster_needs_a_decision(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"master 'spark://h:7077': .* in plain text; set spark.authenticate = "):
        Runner(tmp_path, spark={"master": "spark://h:7077"})
