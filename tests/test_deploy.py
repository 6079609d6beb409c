"""The unit, the image and the Compose file of deploy/ are valid, and fit the command, the code and each other."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import psycopg
import pytest
import sqlalchemy as sa
import yaml
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.deployed import CONTAINERFILE, DEPLOY, settings, tools
from cdc_testing.imports import ROOT
from cdc_testing.pages import Page

from cdc_core.engine.attempts import _STOP_LIMIT_S
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.store.progress import ProgressStore
from cdc_core.web.address import Address

UNIT = DEPLOY / "systemd" / "cdc-node.service"
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
REQUIREMENTS = (ROOT / "requirements-dev.txt").read_text().splitlines()


def variables(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def directive(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
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


def test_a_node_has_time_for_its_drain() -> None:
    given = [float(directive("TimeoutStopSec")), float(COMPOSE["services"]["node"]["stop_grace_period"].rstrip("s"))]
    assert min(given) >= _STOP_LIMIT_S + 20
    limit = NodeSettings(store="", name="one", directory="").drain_limit
    assert _STOP_LIMIT_S < limit < min(given)


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


def test_hadolint_has_nothing_to_complain_about() -> None:
    command = [Path(sys.executable).parent / "hadolint", DEPLOY / "container" / "Containerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_the_compose_file_is_valid() -> None:
    schema = json.loads((tools() / "compose-spec.json").read_text())
    jsonschema.validate(COMPOSE, schema)
    with pytest.raises(jsonschema.ValidationError, match="stop_grace"):
        jsonschema.validate({"services": {"node": {"image": "cdc-node", "stop_grace": "150s"}}}, schema)


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
        next(iter(service["depends_on"])),
        store["POSTGRES_USER"],
        environment["POSTGRES_PASSWORD"],
        store["POSTGRES_USER"],
    )


# The store


def test_the_role_of_the_page_has_the_rights_that_the_store_needs() -> None:
    (text,) = Page("store.md").blocks("sql")
    with EmbeddedPostgres(settings={"fsync": "off"}) as server:  # other servers have another role `cdc`
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            for statement in text.split(";"):
                connection.execute(statement)
            connection.execute("ALTER ROLE cdc PASSWORD 'secret'")
        store = ProgressStore(server.uri("cdc", user="cdc", password="secret"))
        store.open()
        store.close()


def test_the_unit_and_the_image_have_what_a_server_needs() -> None:
    environment = variables(UNIT.parent / "cdc-node.env")
    assert Address.parse(environment["CDC_LISTEN"], option="--listen").is_loopback
    assert Path(environment["CDC_TOKENS"]).parent == Path(directive("EnvironmentFile")).parent
    page = (ROOT / "docs" / "deploy.md").read_text()
    for text in (CONTAINERFILE, page):
        assert "'cdc-core[serve,spark]'" in text
        assert "cdc-core[spark]" not in text
