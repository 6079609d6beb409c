"""The chart of `deploy/helm` makes valid manifests, which fit the command, the image and each other."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pyspark
import pytest
import yaml
from cdc_testing.deployed import DEPLOY, containerfile, settings, tools
from cdc_testing.imports import ROOT
from cdc_testing.pages import Page

from cdc_core.engine.attempts import _STOP_LIMIT_S
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.web.access.callers import read_callers
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Role
from cdc_core.web.endpoints import ready_endpoint

pytestmark = pytest.mark.slow  # helm is built first

Manifest = dict[str, Any]

CHART = DEPLOY / "helm" / "cdc"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
PAGE = Page("kubernetes.md")
EVERYTHING: Manifest = {
    "image": {"repository": "registry.example/cdc-node", "tag": "9", "pullSecrets": ["registry"]},
    "node": {"locality": "region=eu-west-1,zone=eu-west-1a", "cores": 0, "args": ["--owners=ann"]},
    "executors": {"enabled": True},
    "tls": {"enabled": False},
    "env": [{"name": "SHOP", "value": "b"}],
    "envFrom": [{"secretRef": {"name": "more"}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"team": "shop"},
    "nodeSelector": {"topology.kubernetes.io/zone": "eu-west-1a"},
    "tolerations": [{"key": "cdc", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "serviceAccount": {"annotations": {"example.com/role": "writer"}},
    "networkPolicy": {"enabled": True, "callers": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}
CASES: dict[str, Manifest] = {"nodes": {}, "executors": {"executors": {"enabled": True}}, "everything": EVERYTHING}
VERSIONS = ("1.35", "1.37")
"""Of Kubernetes: the oldest that gives pods the labels of their machines, and the newest whose schemas we have."""
CLUSTER = ("--kube-version", VERSIONS[-1])
"""Helm believes it in place of asking a cluster."""
POD = {"REGION": "eu-west-1", "ZONE": "eu-west-1a", "NAMESPACE": "cdc", "POD_NAME": "cdc-node-x", "POD_IP": "10.0.0.1"}
"""What Kubernetes knows of a pod when it starts."""


def helm(*arguments: str | Path, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    given = ["--values", "-"] if values is not None else []
    text = json.dumps(values) if values is not None else None
    command = [tools() / "helm", *arguments, *given]
    return subprocess.run(command, capture_output=True, text=True, input=text, timeout=300)


def made(*arguments: str | Path, values: Manifest | None = None) -> list[Manifest]:
    """Return what `helm install` with these arguments would send."""
    done = helm("template", *CLUSTER, *arguments, values=values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[Manifest]]:
    return {case: made("cdc", CHART, "--namespace", "cdc", values=values) for case, values in CASES.items()}


@pytest.fixture(params=CASES)
def documents(request: pytest.FixtureRequest, rendered: dict[str, list[Manifest]]) -> list[Manifest]:
    return rendered[request.param]


def one(documents: list[Manifest], kind: str, name: str = "cdc-node") -> Manifest:
    (found,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def pod_of(documents: list[Manifest]) -> Manifest:
    spec = one(documents, "Deployment")["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def node_of(documents: list[Manifest]) -> Manifest:
    (container,) = pod_of(documents)["containers"]
    assert isinstance(container, dict)
    return container


def executor_of(documents: list[Manifest]) -> Iterator[Manifest]:
    """Yield the template of executors, if there is one."""
    for each in documents:
        if each["kind"] == "ConfigMap":
            yield yaml.safe_load(each["data"]["executor.yaml"])


def secret(name: str, key: str) -> str:
    """Return what the example has for *key* of the Secret *name*."""
    text = (DEPLOY / "kubernetes" / "secrets.example.yaml").read_text()
    examples = {found["metadata"]["name"]: found for found in yaml.safe_load_all(text)}
    value = examples[name]["stringData"][key]
    assert isinstance(value, str)
    return value


def environment_of(container: Manifest) -> dict[str, str]:
    """Return the variables of a container; each may use those before it, as in Kubernetes."""
    found: dict[str, str] = {}
    for variable in container["env"]:
        name = variable["name"]
        if "value" in variable:
            found[name] = expanded(variable["value"], found)
        elif "secretKeyRef" in variable["valueFrom"]:
            found[name] = secret(**variable["valueFrom"]["secretKeyRef"])
        else:
            found[name] = POD[name]
    return found


def expanded(text: str, known: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], text)


def node_settings(documents: list[Manifest], monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    container = node_of(documents)
    environment = environment_of(container)
    return settings([expanded(word, environment) for word in container["args"]], environment, monkeypatch)


# The chart


def test_helm_has_nothing_to_complain_about() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_the_chart_has_the_version_of_the_product() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_installed_is_valid(documents: list[Manifest], version: str) -> None:
    for document in documents:
        if document["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(document, version, strict=True)
    for template in executor_of(documents):
        kubernetes_validate.validate(template, version, strict=True)


def test_the_service_monitor_is_valid(rendered: dict[str, list[Manifest]]) -> None:
    definition = yaml.safe_load((tools() / "servicemonitor.yaml").read_text())
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == "v1")
    schema = strict(version["schema"]["openAPIV3Schema"])
    for values in (EVERYTHING, {"serviceMonitor": {"enabled": True}}):
        monitor = one(made("cdc", CHART, "--namespace", "cdc", values=values), "ServiceMonitor")
        jsonschema.validate({**monitor, "metadata": {}}, schema)


def strict(schema: Any) -> Any:
    """Return *schema* without room for properties that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**{name: strict(each) for name, each in schema.items()}, **closed}


@pytest.mark.parametrize("case", ["nodes", "executors"])
def test_the_plain_manifests_are_what_the_chart_makes(case: str) -> None:
    done = helm("template", *CLUSTER, "cdc", CHART, "--namespace", "cdc", values=CASES[case])
    assert (DEPLOY / "kubernetes" / f"{case}.yaml").read_text() == done.stdout, "run: deploy/helm/render"


def test_the_schema_knows_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = dict(schema["properties"])
    known.pop("global")  # Helm's own
    assert paths_of_schema(known) == paths_of_values(VALUES)
    done = helm("template", *CLUSTER, "cdc", CHART, values={"nodes": {"cores": 2}})
    assert "additional properties 'nodes' not allowed" in done.stderr


def paths_of_schema(properties: Manifest, prefix: str = "") -> set[str]:
    found = set()
    for name, each in properties.items():
        below = paths_of_schema(each.get("properties", {}), f"{prefix}{name}.")
        found |= below or {prefix + name}
    return found


def paths_of_values(values: Manifest, prefix: str = "") -> set[str]:
    found = set()
    for name, each in values.items():
        is_ours = isinstance(each, dict) and prefix + name not in KUBERNETES_OWN
        found |= paths_of_values(each, f"{prefix}{name}.") if is_ours else {prefix + name}
    return found


KUBERNETES_OWN = {
    *("resources", "podSecurityContext", "securityContext", "readinessProbe", "podAnnotations", "podLabels"),
    *("nodeSelector", "affinity", "serviceAccount.annotations", "serviceMonitor.labels"),
}
"""Values that are copied as they are."""


# The page


def test_the_page_names_values_that_exist() -> None:
    cells = re.findall(r"^\| .*? \| (.*) \|$", PAGE.section("Values"), re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([\w.]+)", cell)}
    assert len(named) > 20
    known = paths_of_values(VALUES)
    assert [name for name in named if not any(f"{path}.".startswith(f"{name}.") for path in known)] == []


def test_the_commands_of_the_pages_install_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = PAGE.text + Page("upgrade.md").text
    commands = re.findall(r"^\$ helm (?:install|upgrade) (.*)$", text, re.MULTILINE)
    [whole, zone, newer] = [made(*shlex.split(command.replace(" --reuse-values", ""))) for command in commands]
    assert node_of(whole)["image"].startswith("registry.example/cdc-node:")
    assert node_of(newer)["image"].endswith(":0.2.0")
    deployment = one(zone, "Deployment", "cdc-a-node")["spec"]
    assert deployment["replicas"] == 1
    spec = deployment["template"]["spec"]
    assert spec["nodeSelector"] == {"topology.kubernetes.io/zone": "eu-west-1a"}
    [locality] = (each["value"] for each in spec["containers"][0]["env"] if each["name"] == "CDC_LOCALITY")
    assert Locality.parse(locality) == Locality.parse("region=eu-west-1,zone=a")


def test_the_values_of_the_page_are_valid() -> None:
    [text] = PAGE.blocks("yaml")
    documents = made("cdc", CHART, values=yaml.safe_load(text))
    kubernetes_validate.validate(one(documents, "NetworkPolicy"), VERSIONS[-1], strict=True)
    assert one(documents, "ServiceMonitor")


# What the nodes run


def test_nodes_run_a_command_that_exists(documents: list[Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    found = node_settings(documents, monkeypatch)
    assert found.place == Locality.parse("region=eu-west-1,zone=eu-west-1a")
    assert found.store == secret("cdc-store", "url")
    assert found.home.is_relative_to(containerfile("WORKDIR"))
    assert not [value for value in (found.spark or {}).values() if "$" in value]


def test_a_node_has_time_for_its_drain(documents: list[Manifest]) -> None:
    given = pod_of(documents)["terminationGracePeriodSeconds"]
    assert given >= _STOP_LIMIT_S + 20
    limit = NodeSettings(store="", name="one", directory="").drain_limit
    assert _STOP_LIMIT_S < limit < given
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"]["terminationGracePeriodSeconds"]["minimum"] > limit


def test_nodes_are_a_cluster(
    rendered: dict[str, list[Manifest]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    documents = rendered["nodes"]
    container = node_of(documents)
    found = node_settings(documents, monkeypatch)
    assert found.cores
    assert found.reached_at == POD["POD_IP"]
    assert found.memory is not None
    assert found.memory < host_bytes(container["resources"]["limits"]["memory"]) / 2
    path = Path(found.cluster_secret_file)
    allowed = environment_of(container)["CDC_ALLOWED_PATHS"]
    assert not path.is_relative_to(allowed), "definitions may not refer to it"
    [mount] = [mount for mount in container["volumeMounts"] if mount["mountPath"] == str(path.parent)]
    [volume] = [each for each in pod_of(documents)["volumes"] if each["name"] == mount["name"]]
    (tmp_path / "secret").write_text(secret(volume["secret"]["secretName"], path.name))
    assert replace(found, cluster_secret_file=str(tmp_path / "secret")).secret()


def host_bytes(text: str) -> int:
    return int(text.removesuffix("Gi")) << 30


def test_everything_runs_one_image(documents: list[Manifest], rendered: dict[str, list[Manifest]]) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    container = node_of(documents)
    expected = "registry.example/cdc-node:9" if documents is rendered["everything"] else f"cdc-node:{version}"
    assert container["image"] == expected
    assert environment_of(container).get("IMAGE") in (None, expected)


# Rights


def test_pods_keep_to_what_a_restricted_namespace_allows(documents: list[Manifest]) -> None:
    user = int(containerfile("USER").partition(":")[0])
    for spec in (pod_of(documents), *(template["spec"] for template in executor_of(documents))):
        whole, (container,) = spec["securityContext"], spec["containers"]
        assert whole["runAsNonRoot"] is True
        assert whole["runAsUser"] == user
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_every_mounted_volume_is_there(documents: list[Manifest]) -> None:
    for spec in (pod_of(documents), *(template["spec"] for template in executor_of(documents))):
        mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_nodes_write_only_where_a_volume_is(documents: list[Manifest]) -> None:
    written = {mount["mountPath"] for mount in node_of(documents)["volumeMounts"] if not mount.get("readOnly")}
    assert written - {"/data"} == {containerfile("WORKDIR"), "/tmp"}


def test_only_nodes_with_executors_may_ask_kubernetes(documents: list[Manifest]) -> None:
    accounts = {each["metadata"]["name"]: each for each in documents if each["kind"] == "ServiceAccount"}
    assert not [name for name, each in accounts.items() if each["automountServiceAccountToken"]]
    has_executors = any(executor_of(documents))
    assert pod_of(documents).get("automountServiceAccountToken", False) is has_executors
    assert ("Role" in {each["kind"] for each in documents}) is has_executors


# Selectors


def test_selectors_find_the_nodes_alone(documents: list[Manifest]) -> None:
    spec = one(documents, "Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    selectors = [
        spec["selector"],
        one(documents, "PodDisruptionBudget")["spec"]["selector"],
        {"matchLabels": one(documents, "Service")["spec"]["selector"]},
        *(spread["labelSelector"] for spread in pod_of(documents)["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector["matchLabels"].items() <= labels
        for template in executor_of(documents):
            assert not selector["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_the_service_monitor_finds_the_service(rendered: dict[str, list[Manifest]]) -> None:
    documents = rendered["everything"]
    monitor, service = one(documents, "ServiceMonitor")["spec"], one(documents, "Service")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["endpoints"]] == [each["name"] for each in service["spec"]["ports"]]


def test_a_network_policy_lets_nodes_and_executors_reach_each_other(rendered: dict[str, list[Manifest]]) -> None:
    documents = rendered["everything"]
    policy = one(documents, "NetworkPolicy")["spec"]
    [template] = executor_of(documents)
    ours, callers = policy["ingress"]
    [peer] = ours["from"]
    assert "ports" not in ours
    for made_of in (one(documents, "Deployment")["spec"]["template"], template):
        labels = made_of["metadata"]["labels"]
        assert peer["podSelector"]["matchLabels"].items() <= labels.items()
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert callers["from"] == EVERYTHING["networkPolicy"]["callers"]
    assert [each["port"] for each in callers["ports"]] == [each["name"] for each in node_of(documents)["ports"]]


# Executors


def test_spark_knows_the_settings_of_executors(rendered: dict[str, list[Manifest]]) -> None:
    names = [word.split("=", 2)[1] for word in node_of(rendered["executors"])["args"] if "spark." in word]
    jars = Path(pyspark.__file__).parent / "jars"
    known = b""
    for jar, module in (("spark-kubernetes_2", "deploy/k8s/Config$"), ("spark-core_2", "internal/config/package$")):
        (path,) = jars.glob(f"{jar}*.jar")
        known += zipfile.ZipFile(path).read(f"org/apache/spark/{module}.class")
    assert len(names) > 10
    assert not [name for name in names if name.removesuffix(".serviceAccountName").encode() not in known]


def test_a_node_may_use_what_its_executors_need(rendered: dict[str, list[Manifest]]) -> None:
    documents = rendered["executors"]
    role, binding = one(documents, "Role"), one(documents, "RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [pod_of(documents)["serviceAccountName"]]
    args = node_of(documents)["args"]
    (account,) = (word.rpartition("=")[2] for word in args if ".serviceAccountName=" in word)
    assert one(documents, "ServiceAccount", account)
    (file,) = (Path(word.rpartition("=")[2]) for word in args if ".podTemplateFile=" in word)
    (name,) = (mount["name"] for mount in node_of(documents)["volumeMounts"] if mount["mountPath"] == str(file.parent))
    (volume,) = (each["configMap"]["name"] for each in pod_of(documents)["volumes"] if each["name"] == name)
    assert file.name in one(documents, "ConfigMap", volume)["data"]


# The server of a node


def test_nodes_listen_where_probes_and_the_service_ask(
    documents: list[Manifest], rendered: dict[str, list[Manifest]]
) -> None:
    container = node_of(documents)
    environment = environment_of(container)
    address = Address.parse(environment["CDC_LISTEN"], option="--listen")
    assert address.is_everywhere
    [port] = container["ports"]
    assert port["containerPort"] == address.port
    probe = container["readinessProbe"]["httpGet"]
    scheme = "HTTP" if documents is rendered["everything"] else "HTTPS"
    assert (probe["port"], probe["scheme"]) == (port["name"], scheme)
    assert ("CDC_TLS_CERT" in environment) is (scheme == "HTTPS")
    assert ("--trusted-network" in container["args"]) is (scheme == "HTTP")
    endpoint = ready_endpoint(lambda: None)
    assert (endpoint.path, endpoint.role) == (probe["path"], Role.ANYONE)
    assert [each["targetPort"] for each in one(documents, "Service")["spec"]["ports"]] == [port["name"]]


def test_the_files_that_nodes_let_callers_in_by_are_in_their_secret(documents: list[Manifest], tmp_path: Path) -> None:
    environment = environment_of(node_of(documents))
    [mount] = [mount for mount in node_of(documents)["volumeMounts"] if mount["name"] == "web"]
    [volume] = [volume for volume in pod_of(documents)["volumes"] if volume["name"] == "web"]
    for name in {"CDC_TOKENS", "CDC_TLS_CERT", "CDC_TLS_KEY"} & environment.keys():
        path = Path(environment[name])
        assert str(path.parent) == mount["mountPath"]
        assert secret(volume["secret"]["secretName"], path.name)
    tokens = tmp_path / "tokens"
    tokens.write_text(secret("cdc-web", "tokens"))
    assert [caller.role for caller in read_callers(tokens)] == [Role.VIEW]
