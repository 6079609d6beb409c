"""What is in deploy/ is valid, and fits the command, the code and each other."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import psycopg
import pyspark
import pytest
import sqlalchemy as sa
import yaml
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres

from cdc_core.cli.main import cdc
from cdc_core.cli.node import _settings as parsed_settings
from cdc_core.cli.node import node
from cdc_core.engine.attempts import _STOP_LIMIT_S
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.store.progress import ProgressStore
from cdc_core.web.access.callers import read_callers
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Role
from cdc_core.web.endpoints import ready_endpoint

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "cdc-node.service"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("base", "executors", "zone-a")
PATCHES = ("kustomization.yaml", "executors/node.yaml")
"""Files that are no manifests by themselves: they are checked as rendered."""
MANIFESTS = sorted(path for path in KUBERNETES.rglob("*.yaml") if not str(path).endswith(PATCHES))
EXECUTOR = yaml.safe_load((KUBERNETES / "executors" / "executor.yaml").read_text())
REQUIREMENTS = (ROOT / "requirements-dev.txt").read_text().splitlines()
VERSIONS = ("1.35", "1.37")
"""Of Kubernetes: the oldest that gives pods the labels of their machines, and the newest whose schemas we have."""
POD = {"REGION": "eu-west-1", "ZONE": "eu-west-1a", "NAMESPACE": "cdc", "POD_NAME": "cdc-node-x", "POD_IP": "10.0.0.1"}
"""What Kubernetes knows of a pod when it starts."""


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[dict[str, Any]]]:
    """What `kubectl apply -k` would send, by overlay."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl renders the overlays, and there is none here")
    found = {}
    for overlay in OVERLAYS:
        command = ["kubectl", "kustomize", str(KUBERNETES / overlay)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert not done.stderr
        found[overlay] = list(yaml.safe_load_all(done.stdout))
    return found


@pytest.fixture(params=OVERLAYS)
def deployment(request: pytest.FixtureRequest, rendered: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return one(rendered[request.param], "Deployment")


def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    spec = deployment["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def one(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def node_of(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod(deployment)["containers"]
    assert isinstance(container, dict)
    return container


def documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())


def settings(words: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    """Return what `cdc` with the arguments *words* makes of them in this environment, of which it knows every name."""
    name, command, arguments = cdc.resolve_command(click.Context(cdc), words)
    assert command is node
    known = {str(parameter.envvar) for parameter in command.params if parameter.envvar}
    known |= {"CDC_CACHE", "CDC_CLUSTER_SECRET"}
    assert {variable for variable in environment if variable.startswith("CDC_")} <= known
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    return parsed_settings(command.make_context(name, list(arguments)).params)


def variables(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def directive(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return value


def environment_of(container: dict[str, Any]) -> dict[str, str]:
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


def secret(name: str, key: str) -> str:
    """Return what the example has for *key* of the Secret *name*."""
    examples = {found["metadata"]["name"]: found for found in documents(KUBERNETES / "secrets.example.yaml")}
    value = examples[name]["stringData"][key]
    assert isinstance(value, str)
    return value


# systemd


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/cdc/bin/", f"{Path(sys.executable).parent}/")
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_leaves_a_node_few_rights() -> None:
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20", UNIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_the_unit_runs_a_command_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = variables(UNIT.parent / "cdc-node.env")
    program, *words = shlex.split(
        directive("ExecStart").replace("$CDC_NODE_OPTIONS", environment.pop("CDC_NODE_OPTIONS"))
    )
    assert Path(program).name == "cdc"
    found = settings(words, environment, monkeypatch)
    assert found.place == Locality.parse("region=eu-west-1,zone=a")
    assert found.store == environment["CDC_STORE"]
    assert directive("EnvironmentFile") == "/etc/cdc/cdc-node.env"
    assert found.cores
    assert found.cluster_secret_file in (ROOT / "docs" / "deploy.md").read_text()
    assert not Path(found.cluster_secret_file).is_relative_to(environment["CDC_ALLOWED_PATHS"])


# Time to stop


def test_a_node_has_time_for_its_drain(rendered: dict[str, list[dict[str, Any]]]) -> None:
    given = [float(directive("TimeoutStopSec")), float(COMPOSE["services"]["node"]["stop_grace_period"].rstrip("s"))]
    for found in rendered.values():
        given.append(one(found, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
    assert min(given) >= _STOP_LIMIT_S + 20
    limit = NodeSettings(store="", name="one", directory="").drain_limit
    assert _STOP_LIMIT_S < limit < min(given)


# Kubernetes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_every_manifest_is_valid(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_applied_is_valid(overlay: str, version: str, rendered: dict[str, list[dict[str, Any]]]) -> None:
    for document in rendered[overlay]:
        kubernetes_validate.validate(document, version, strict=True)


def test_nodes_run_a_command_that_exists(deployment: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    container = node_of(deployment)
    environment = environment_of(container)
    found = settings([expanded(word, environment) for word in container["args"]], environment, monkeypatch)
    assert found.place == Locality.parse("region=eu-west-1,zone=eu-west-1a")
    assert found.store == environment["CDC_STORE"]
    (home,) = re.findall(r"^WORKDIR (.*)$", CONTAINERFILE, re.MULTILINE)
    assert found.home.is_relative_to(home)
    assert not [value for value in (found.spark or {}).values() if "$" in value]


def test_nodes_in_kubernetes_are_a_cluster(
    rendered: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    container = node_of(one(rendered["base"], "Deployment"))
    environment = environment_of(container)
    found = settings([expanded(word, environment) for word in container["args"]], environment, monkeypatch)
    assert found.cores
    assert found.reached_at == POD["POD_IP"]
    assert found.memory is not None
    assert found.memory < host_bytes(container["resources"]["limits"]["memory"]) / 2
    path = Path(found.cluster_secret_file)
    assert not path.is_relative_to(environment["CDC_ALLOWED_PATHS"]), "definitions may not refer to it"
    [mount] = [mount for mount in container["volumeMounts"] if mount["mountPath"] == str(path.parent)]
    [volume] = [each for each in pod(one(rendered["base"], "Deployment"))["volumes"] if each["name"] == mount["name"]]
    (tmp_path / "secret").write_text(secret(volume["secret"]["secretName"], path.name))
    assert replace(found, cluster_secret_file=str(tmp_path / "secret")).secret()


def host_bytes(text: str) -> int:
    return int(text.removesuffix("Gi")) << 30


def test_selectors_find_the_nodes_alone(deployment: dict[str, Any], rendered: dict[str, list[dict[str, Any]]]) -> None:
    spec = deployment["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    selectors = [
        spec["selector"],
        *(spread["labelSelector"] for spread in pod(deployment)["topologySpreadConstraints"]),
    ]
    (overlay,) = (found for found in rendered.values() if deployment in found)
    selectors.append(one(overlay, "PodDisruptionBudget")["spec"]["selector"])
    for selector in selectors:
        assert selector["matchLabels"].items() <= labels
        assert not selector["matchLabels"].items() <= EXECUTOR["metadata"]["labels"].items()


def test_pods_keep_to_what_a_restricted_namespace_allows(deployment: dict[str, Any]) -> None:
    user = re.findall(r"^USER (\d+):", CONTAINERFILE, re.MULTILINE)
    for spec in (pod(deployment), EXECUTOR["spec"]):
        whole, (container,) = spec["securityContext"], spec["containers"]
        assert whole["runAsNonRoot"] is True
        assert [str(whole["runAsUser"])] == user
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_every_mounted_volume_is_there(deployment: dict[str, Any]) -> None:
    for spec in (pod(deployment), EXECUTOR["spec"]):
        mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_nodes_write_only_where_a_volume_is(deployment: dict[str, Any]) -> None:
    container = node_of(deployment)
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    (home,) = re.findall(r"^WORKDIR (.*)$", CONTAINERFILE, re.MULTILINE)
    assert written == {home, "/tmp"}


def test_everything_runs_the_image_of_this_version(deployment: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    container = node_of(deployment)
    assert container["image"] == f"cdc-node:{version}"
    assert environment_of(container).get("IMAGE") in (None, container["image"])


def test_spark_knows_the_settings_of_executors(rendered: dict[str, list[dict[str, Any]]]) -> None:
    names = [
        word.split("=", 2)[1] for word in node_of(one(rendered["executors"], "Deployment"))["args"] if "spark." in word
    ]
    jars = Path(pyspark.__file__).parent / "jars"
    known = b""
    for jar, module in (("spark-kubernetes_2", "deploy/k8s/Config$"), ("spark-core_2", "internal/config/package$")):
        (path,) = jars.glob(f"{jar}*.jar")
        known += zipfile.ZipFile(path).read(f"org/apache/spark/{module}.class")
    assert len(names) > 10
    assert not [name for name in names if name.removesuffix(".serviceAccountName").encode() not in known]


def test_a_node_may_use_what_its_executors_need(rendered: dict[str, list[dict[str, Any]]]) -> None:
    found = rendered["executors"]
    role, binding = one(found, "Role"), one(found, "RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    spec = pod(one(found, "Deployment"))
    assert [subject["name"] for subject in binding["subjects"]] == [spec["serviceAccountName"]]
    assert spec["automountServiceAccountToken"] is True
    (template,) = (document for document in found if document["kind"] == "ConfigMap")
    assert yaml.safe_load(template["data"]["executor.yaml"]) == EXECUTOR
    accounts = {document["metadata"]["name"] for document in found if document["kind"] == "ServiceAccount"}
    (account,) = (word for word in spec["containers"][0]["args"] if ".serviceAccountName=" in word)
    assert account.rpartition("=")[2] in accounts


# The image


def test_the_image_has_every_distribution_but_the_kit() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sent = {
        str(project.parent.relative_to(ROOT))
        for project in ROOT.glob("*/*/pyproject.toml")
        if any(project.is_relative_to(ROOT / name) for name in allowed)
    }
    members = {line.removeprefix("-e ./").partition("[")[0] for line in REQUIREMENTS if line.startswith("-e ./")}
    assert sent == members - {"plugins/conformance"}
    for source in re.findall(r"^COPY (?:--chmod=\d+ )?(deploy/\S+)", CONTAINERFILE, re.MULTILINE):
        assert (ROOT / source).is_file()


def test_containers_of_one_machine_are_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    service, store = COMPOSE["services"]["node"], COMPOSE["services"]["store"]["environment"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert service["image"] == f"cdc-node:{version}"
    root = DEPLOY / "container" / service["build"]["context"]
    assert (root / service["build"]["dockerfile"]).read_text() == CONTAINERFILE
    environment = {
        name: re.sub(r"\$\{(\w+):\?\}", lambda match: match[1] * 16, value)
        for name, value in (service["environment"] | store).items()
    }
    found = settings(service["command"], environment, monkeypatch)
    assert found.cores
    assert found.secret() == environment["CDC_CLUSTER_SECRET"]
    url = sa.make_url(found.store)
    assert (url.host, url.username, url.password, url.database) == (
        service["depends_on"][0],
        store["POSTGRES_USER"],
        environment["POSTGRES_PASSWORD"],
        store["POSTGRES_USER"],
    )


# The store


def test_the_role_of_the_page_has_the_rights_that_the_store_needs() -> None:
    (text,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    with EmbeddedPostgres(settings={"fsync": "off"}) as server:  # other servers have another role `cdc`
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            for statement in text.split(";"):
                connection.execute(statement)
            connection.execute("ALTER ROLE cdc PASSWORD 'secret'")
        store = ProgressStore(server.uri("cdc", user="cdc", password="secret"))
        store.open()
        store.close()


# The server of a node


def test_nodes_in_kubernetes_listen_where_probes_and_the_service_ask(
    deployment: dict[str, Any], rendered: dict[str, list[dict[str, Any]]]
) -> None:
    container = node_of(deployment)
    environment = environment_of(container)
    address = Address.parse(environment["CDC_LISTEN"], option="--listen")
    assert address.is_everywhere
    [port] = container["ports"]
    assert port["containerPort"] == address.port
    probe = container["readinessProbe"]["httpGet"]
    assert (probe["port"], probe["scheme"]) == (port["name"], "HTTPS")
    endpoint = ready_endpoint(lambda: None)
    assert (endpoint.path, endpoint.role) == (probe["path"], Role.ANYONE)
    (overlay,) = (found for found in rendered.values() if deployment in found)
    service = one(overlay, "Service")["spec"]
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
    assert service["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_the_files_that_nodes_let_callers_in_by_are_in_their_secret(deployment: dict[str, Any], tmp_path: Path) -> None:
    environment = environment_of(node_of(deployment))
    [mount] = [mount for mount in node_of(deployment)["volumeMounts"] if mount["name"] == "web"]
    [volume] = [volume for volume in pod(deployment)["volumes"] if volume["name"] == "web"]
    for name in ("CDC_TOKENS", "CDC_TLS_CERT", "CDC_TLS_KEY"):
        path = Path(environment[name])
        assert str(path.parent) == mount["mountPath"]
        assert secret(volume["secret"]["secretName"], path.name)
    tokens = tmp_path / "tokens"
    tokens.write_text(secret("cdc-web", "tokens"))
    assert [caller.role for caller in read_callers(tokens)] == [Role.VIEW]


def test_the_unit_and_the_image_have_what_a_server_needs() -> None:
    environment = variables(UNIT.parent / "cdc-node.env")
    assert Address.parse(environment["CDC_LISTEN"], option="--listen").is_loopback
    assert Path(environment["CDC_TOKENS"]).parent == Path(directive("EnvironmentFile")).parent
    page = (ROOT / "docs" / "deploy.md").read_text()
    for text in (CONTAINERFILE, page):
        assert "'cdc-core[serve,spark]'" in text
        assert "cdc-core[spark]" not in text
