"""The OpenAPI document: it says all that the server answers, whatever a generated request holds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.imports import ROOT
from cdc_testing.rest_rig import Rest, config, serving_rest
from cdc_testing.stored import node, progress

from cdc_core.changefeeds import creating
from cdc_core.plugins.host import PluginHost
from cdc_core.web.endpoints import all_endpoints

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A server with a connector that runs, and one that is stopped."""
    (tmp_path / "control").mkdir()
    with serving_rest(tmp_path / "store") as rest:
        rest.create("orders", config(tmp_path / "control"))
        one = rest.store.nodes.join(node("one"), lease_s=600)
        assert rest.store.claims.adopt("orders", one) is not None
        rest.store.progress.save("orders", 1, progress(50))
        rest.create("stopped", config(tmp_path / "control"), initial_state="STOPPED")
        yield rest


def test_every_endpoint_but_those_of_the_page_is_documented(rest: Rest) -> None:
    document = rest.get("/openapi.json")
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    ours = [each for each in all_endpoints(list) if not each.path.startswith("/ui")]
    assert found == {(each.method, each.path) for each in ours}
    for each in ours:
        named = set(re.findall(r"\{(\w+)\}", each.path))
        operation = document["paths"][each.path][each.method.lower()]
        assert named == {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert each.summary.endswith("."), each.path
        needs_token = operation.get("security", document["security"]) != []
        assert (needs_token, {"401", "403"} <= operation["responses"].keys()) == (bool(each.role), bool(each.role))
    references = set(re.findall(r'"#/components/schemas/(\w+)"', str(document).replace("'", '"')))
    assert references <= document["components"]["schemas"].keys()


@pytest.mark.slow
def test_no_generated_request_breaks_the_server_or_its_schema(rest: Rest) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{rest.url}/openapi.json"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", "2", "--max-redirects", "0", "--seed", "7"]
    command += ["--generation-database", "none", "--continue-on-failure", "--no-color", "--max-time", "25"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    found = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert found is not None, done.stdout[-3000:]
    assert int(found[1]) == int(found[2]) > 100


PAGE = (ROOT / "docs/rest.md").read_text()


def steps() -> Iterator[tuple[str, str]]:
    """Yield each command of the page with what it prints."""
    for block in re.findall(r"```(?:console|text)\n(.*?)```", PAGE, re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = step.splitlines()
            for end in range(1, len(lines) + 1):
                command = "\n".join(lines[:end])
                if command.count("'") % 2 == 0:
                    yield command, "\n".join(lines[end:])
                    break


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creating, "check_job", lambda *_args, **_options: None)  # there is no database
    with serving_rest(tmp_path, plugins=PluginHost.load(), PGPASSWORD="hunter2") as rest:
        asked = 0
        for command, printed in steps():
            assert shlex.split(command)[0] == "curl"
            here = command.replace("localhost:8083", rest.url)
            done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=60)
            assert done.stdout == printed, command
            asked += 1
    assert asked > 8
