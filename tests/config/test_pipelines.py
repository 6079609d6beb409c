"""Changefeeds that installed packages publish."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.distributions import install

from cdc_core.config.pipelines import pipeline, pipeline_names
from cdc_core.errors import ConfigError, PluginConflictError, PluginLoadError
from cdc_core.plugins.entry_points import PIPELINES

SOURCE = """
    from cdc_core.config.changefeed import Changefeed

    def build():
        return Changefeed(name="orders", source="paper://x", tables=["orders"], sink="shelf://x")

    orders = build()
    number = 5

    def fails():
        raise KeyError("PATH_OF_DATA")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def publish(site: Path, name: str, attribute: str, *, module: str, distribution: str = "acme-pipelines") -> None:
    install(
        site,
        distribution,
        "2.0",
        module=module,
        source=SOURCE,
        group=PIPELINES,
        entry=name,
        value=f"{module}:{attribute}",
    )


@pytest.mark.parametrize("attribute", ["orders", "build"])
def test_a_pipeline_is_a_changefeed_or_a_function_that_returns_one(site: Path, attribute: str) -> None:
    publish(site, "shop-orders", attribute, module=f"cdc_t_pipeline_{attribute}")
    assert "shop-orders" in pipeline_names()
    assert pipeline("shop-orders").name == "orders"


@pytest.mark.parametrize(
    ("attribute", "complaint"),
    [
        ("fails", "pipeline 'shop' of acme-pipelines 2.0 cannot be loaded: KeyError: 'PATH_OF_DATA'"),
        ("missing", "pipeline 'shop' of acme-pipelines 2.0 cannot be loaded: AttributeError"),
        ("number", "pipeline 'shop' of acme-pipelines 2.0 is int, not a Changefeed"),
    ],
)
def test_a_broken_pipeline_is_reported_by_its_distribution(site: Path, attribute: str, complaint: str) -> None:
    publish(site, "shop", attribute, module=f"cdc_t_pipeline_{attribute}")
    with pytest.raises(PluginLoadError, match=complaint.replace(".", r"\.")):
        pipeline("shop")


def test_a_pipeline_that_two_distributions_publish_names_both(site: Path) -> None:
    publish(site, "shop", "orders", module="cdc_t_pipeline_one", distribution="acme-one")
    publish(site, "shop", "orders", module="cdc_t_pipeline_two", distribution="acme-two")
    with pytest.raises(PluginConflictError, match=r"published by both acme-one 2\.0 and acme-two 2\.0"):
        pipeline("shop")


def test_an_unknown_pipeline_suggests_the_nearest(site: Path) -> None:
    publish(site, "shop-orders", "orders", module="cdc_t_pipeline_near")
    with pytest.raises(ConfigError, match=r"publishes a pipeline 'shop-order'; did you mean 'shop-orders'\?"):
        pipeline("shop-order")
