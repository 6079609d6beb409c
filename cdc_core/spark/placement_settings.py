"""`execution_locality` as Spark settings: executors begin only where all of its tiers are. Needs no Spark.

Each tier `name=value` has a name of its own with each master:

master          where executors may begin                                       region=eu-west-1
standalone      workers with the resource `cdc_<name>_<value>`, `.` as `_`      cdc_region_eu-west-1
Kubernetes      nodes with the label `<name>` and this value; for `region`      topology.kubernetes.io/region: eu-west-1
                and `zone` Kubernetes' own labels
YARN            nodes with the label `<value>`; a node has one label at most    eu-west-1
local           this process, whose own locality must match
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality

_WELL_KNOWN = {"region": "topology.kubernetes.io/region", "zone": "topology.kubernetes.io/zone"}
_YARN_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def pin(feed: ResolvedChangefeed, here: Locality) -> ResolvedChangefeed:
    """Return *feed* for a driver at *here*, with the Spark settings that its execution_locality means.

    Repeatable. Raises: ConfigError when it cannot be carried out.
    """
    try:
        spark = pinned(feed.spark, feed.options.execution_locality, here=here)
        return replace(feed, spark=spark, locality=here)
    except ConfigError as error:
        raise ConfigError(f"changefeed '{feed.name}': {error}") from None


def pinned(spark: Mapping[str, str], wanted: str | None, *, here: Locality) -> Mapping[str, str]:
    """Return the settings *spark* with those that keep executors within *wanted*. Raises: ConfigError."""
    locality = Locality.parse(wanted or "")
    if not locality.tiers:
        return spark
    option, master = f"execution_locality {locality}", spark.get("master", "local")
    if not here.matches(locality) and (here.tiers or master.startswith("local")):
        whose = f"whose locality is {here}" if here.tiers else "which has no locality"
        raise ConfigError(
            f"{option} does not match this process, {whose}; run the changefeed on a machine that matches, and give "
            "that machine's locality with --locality or CDC_LOCALITY"
        )
    settings = _settings(locality, master, option)
    for key, value in settings.items():
        for written in (key, _for_both(key)):
            if spark.get(written, value) != value:
                raise ConfigError(
                    f"{option} sets {written} to '{value}', but the Spark settings set it to '{spark[written]}'; remove"
                    " one of them"
                )
    return {**spark, **settings}


def resource_name(tier: str, value: str) -> str:
    """Return the name of the resource by which workers of a standalone cluster say that they are in a tier."""
    return f"cdc_{tier}_{value}".replace(".", "_")


def worker_resources(locality: Locality, path: str, *, executors: int) -> tuple[str, str]:
    """Return the content of the resources file at *path* of a worker in *locality*, and the worker's settings.

    The worker then starts at most *executors* executors that ask for one of its tiers.
    """
    names = sorted({resource_name(*tier) for tier in locality.tiers})
    addresses = [str(number) for number in range(executors)]
    resources = [
        {"id": {"componentName": "spark.worker", "resourceName": name}, "addresses": addresses} for name in names
    ]
    amounts = [f"spark.worker.resource.{name}.amount {executors}" for name in names]
    return json.dumps(resources) + "\n", "\n".join([f"spark.worker.resourcesFile {path}", *amounts])


def _settings(locality: Locality, master: str, option: str) -> dict[str, str]:
    if master.startswith("local"):
        return {}
    if master.startswith("spark://") or master == "nodes":
        return {f"spark.executor.resource.{resource_name(*tier)}.amount": "1" for tier in locality.tiers}
    if master.startswith("k8s://"):
        return {
            f"spark.kubernetes.{role}.node.selector.{_WELL_KNOWN.get(name, name)}": value
            for name, value in locality.tiers
            for role in ("driver", "executor")
        }
    if master == "yarn":
        return dict.fromkeys(
            ("spark.yarn.am.nodeLabelExpression", "spark.yarn.executor.nodeLabelExpression"),
            _yarn_label(locality, option),
        )
    raise ConfigError(
        f"{option} is not supported by the Spark master '{master}'; use local, nodes, spark://, k8s:// or yarn, or "
        "remove the option"
    )


def _yarn_label(locality: Locality, option: str) -> str:
    if len(locality.tiers) > 1:
        raise ConfigError(
            f"{option} has {len(locality.tiers)} tiers, but YARN selects nodes by one label; give the nodes a label for"
            " the combination, and use one tier with that label as its value"
        )
    ((_, value),) = locality.tiers
    if not _YARN_LABEL.fullmatch(value):
        raise ConfigError(f"{option}: '{value}' is not a valid YARN node label; use letters, digits, - and _")
    return value


def _for_both(key: str) -> str:
    """Return the setting that stands for *key* of drivers and executors alike, where Kubernetes has one."""
    return re.sub(r"^spark\.kubernetes\.(driver|executor)\.node", "spark.kubernetes.node", key)
