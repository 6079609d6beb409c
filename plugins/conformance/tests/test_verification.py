"""`cdc verify` and `pytest --pyargs cdc_conformance` test an installed plugin without any test code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.cli import _coloured
from cdc_testing.distributions import install

from cdc_core.cli.main import main

pytest_plugins = ["pytester"]

PLUGIN = """
import dataclasses
from cdc_conformance.reference.sink import ReferenceDestination
from cdc_conformance.reference.sink import REFERENCE_SINK
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import hookimpl

SHELF = dataclasses.replace(REFERENCE_SINK, name="{name}", schemes=("{name}",))

class ForgetfulSink(ReferenceSink):
    def close(self):
        raise OSError(f"cannot close {{self.context.uri}} with {{self.options.password}}")

class HangingDestination(ReferenceDestination):
    def topic(self, table):
        import threading
        threading.Event().wait()

@hookimpl
def cdc_register_sinks():
    yield SHELF
    for short, changes in (
        ("forgets", {{"sink": f"{{__name__}}:ForgetfulSink"}}),
        ("hangs", {{"destination": f"{{__name__}}:HangingDestination"}}),
        ("unread", {{"reader": "nowhere:Reader"}}),
    ):
        yield dataclasses.replace(SHELF, name=f"{name}-{{short}}", schemes=(f"{name}-{{short}}",), **changes)
"""
QUICK = "closing_twice or topic_connects"
"""Two promises that take little time."""

Verify = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a sink of an installed third-party distribution; `-forgets`, `-hangs` and `-unread` are broken."""
    word = re.sub(r"\W|_", "", tmp_path.name)[-40:].lower()
    name = f"shelf-{word}"
    install(tmp_path / "site", f"acme-{word}", "3.1", module=f"cdc_t_{word}", source=PLUGIN.format(name=name))
    monkeypatch.syspath_prepend(tmp_path / "site")
    return name


@pytest.fixture
def verify(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Verify:
    """Return a function that runs `cdc verify` here and returns exit status, output and errors."""

    def run(kind: str, name: str, *arguments: str) -> tuple[int, str, str]:
        if kind == "sink" and "--uri" not in arguments:
            arguments = ("--uri", f"{name}://{tmp_path}/{{unique}}", *arguments)
        status = main(["verify", kind, name, *arguments])
        return status, *capfd.readouterr()

    return run


def test_a_third_party_sink_is_tested_without_a_test(verify: Verify, shelf: str, tmp_path: Path) -> None:
    status, shown, errors = verify("sink", shelf, "-k", QUICK)
    assert (status, errors) == (0, "")
    lines = shown.splitlines()
    assert lines[0] == (
        f"sink '{shelf}': writes to {shelf}://{tmp_path}/{{unique}} with another word for {{unique}} each time, "
        "and deletes nothing"
    )
    assert "  PASS   closing twice is harmless" in lines
    assert any(re.fullmatch(rf"sink '{shelf}' of acme-\w+ 3\.1: 2 kept, \d+ not declared", line) for line in lines)
    assert re.fullmatch(r"\d+ deselected", lines[-1])


def test_a_broken_promise_shows_its_contract_and_what_was_seen(verify: Verify, shelf: str, tmp_path: Path) -> None:
    name = f"{shelf}-forgets"
    status, shown, _ = verify("sink", name, "-k", QUICK, "--option", "password=sesame", "--option", "partitions=2")
    assert status == 1
    assert "FAIL   closing twice is harmless\n" in shown
    _, _, failure = shown.partition("\nFAIL  closing twice is harmless  (test_closing_twice_is_harmless)\n")
    contract, _, seen = failure.partition("  observed:\n")
    assert contract.startswith("  the promise:\n    ")
    one_line = " ".join(seen.split())
    assert re.match(rf"OSError: cannot close {name}://{tmp_path}/v[0-9a-f]{{12}} with \*\*\* ", one_line)
    assert "_pytest" not in seen.replace(str(tmp_path), "")
    assert (
        f"  again: cdc verify sink {name} --uri '{name}://{tmp_path}/{{unique}}' --option 'password=***' "
        "--option partitions=2 -k test_closing_twice_is_harmless\n"
    ) in seen
    assert "sesame" not in shown


def test_a_promise_that_takes_too_long_fails(verify: Verify, shelf: str) -> None:
    status, shown, _ = verify("sink", f"{shelf}-hangs", "-k", QUICK, "--timeout", "1")
    assert status == 1
    assert (
        "'topic connects to nothing' did not end within 1 s; the last line below shows where it was waiting"
        in " ".join(shown.split())
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"name": "shelv"}, "there is no sink 'shelv'; "),
        ({"uri": "{root}/x"}, "each promise needs a separate place: put {unique} into the URI or into an option"),
        ({"uri": "file:///x/{unique}"}, " must begin with '"),
        ({"uri": "{scheme}://u:p/w@h/{unique}"}, "the password in the URI must be percent-encoded"),
        ({"option": "patient=3"}, "does not know option 'patient'; did you mean 'patience'?"),
        ({"option": "partitions=0"}, "option 'partitions' must be at least 1"),
        ({"option": "partitions"}, "option 'partitions' has no value; write it as name=value"),
        ({"capability": "stal"}, "no sink has the capability 'stal'; did you mean 'stall'?"),
        (
            {"capability": "stall"},
            "the capability 'stall' needs the fixture disturbance, which only a test class can have; omit --capability"
            " stall, or write a test class (`cdc docs conformance`)",
        ),
        ({"format": "jsn"}, "there is no encoder 'jsn'; did you mean 'json'?"),
        ({"-k": "nothing_of_that_name"}, "no promise of a sink matches -k nothing_of_that_name"),
        ({"report": "no/such/directory/x.json"}, "--report no/such/directory/x.json: the directory "),
        ({"uri": "{scheme}:///dev/null/{unique}"}, "/dev/null/"),
    ],
    ids=[
        *("name", "unique", "scheme", "password", "option", "value", "no-value", "capability", "fixture", "format"),
        *("nothing", "report", "place"),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(
    verify: Verify, shelf: str, tmp_path: Path, change: dict[str, str], complaint: str
) -> None:
    given = {"name": shelf, "uri": "{root}/{unique}", **change}
    uri = given.pop("uri").replace("{root}", f"{shelf}://{tmp_path}").replace("{scheme}", shelf)
    name = given.pop("name")
    arguments = [word for flag, text in given.items() for word in (flag if flag == "-k" else f"--{flag}", text)]
    status, shown, errors = verify("sink", name, "--uri", uri, *arguments)
    assert status == 2
    assert complaint in errors
    assert len(errors.splitlines()) == 1
    assert shown == ""


def test_a_common_error_is_reported_once(verify: Verify, shelf: str) -> None:
    status, shown, _ = verify("sink", f"{shelf}-unread", "-k", "topic_connects or nulls_arrive or deletes_arrive")
    assert status == 1
    assert shown.count("No module named 'nowhere'") == 1
    assert "  these were not tested because of the same error:\n    nulls arrive\n" in shown
    assert "0 kept, 3 not tested because of an error" in shown


def test_a_source_where_no_table_can_be_created_is_refused(verify: Verify) -> None:
    status, shown, errors = verify("rangefeed", "postgres", "--uri", "postgresql://u:sesame@127.0.0.1:1/d")
    assert (status, shown) == (2, "")
    assert errors.startswith("error: no table can be created at the URI of rangefeed 'postgres': connection failed")
    assert len(errors.splitlines()) == 1
    assert "sesame" not in errors


def test_an_encoder_needs_no_uri(verify: Verify) -> None:
    status, shown, _ = verify("encoder", "json", "-k", "secrets")
    assert status == 0
    assert shown.startswith("encoder 'json': writes nothing\n")


def test_the_report_can_be_a_file_or_standard_output(verify: Verify, shelf: str, tmp_path: Path) -> None:
    secret = ("--option", "password=sesame")
    status, shown, errors = verify("sink", f"{shelf}-forgets", "-k", QUICK, "--report", "-", *secret)
    found = json.loads(shown)
    assert status == 1
    assert "closing twice is harmless" in errors
    (suite,) = found["suites"]
    assert (suite["kind"], suite["name"], suite["distribution"]["version"]) == ("sink", f"{shelf}-forgets", "3.1")
    reasons = {promise["name"]: promise["reason"] for promise in suite["promises"]}
    assert "with ***" in reasons["test_closing_twice_is_harmless"]
    assert "sesame" not in shown + errors
    report = tmp_path / "promises.json"
    status, shown, _ = verify("sink", f"{shelf}-forgets", "-k", QUICK, "--report", str(report), *secret)
    assert shown.endswith(f"wrote {report}\n")
    assert json.loads(report.read_text())["counts"] == found["counts"]


def test_the_working_directory_has_no_effect_and_stays_unchanged(
    verify: Verify, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\npython_functions = nothing\n")
    (here / "conftest.py").write_text("raise RuntimeError('nobody asked for this')\n")
    (here / "json.py").write_text("raise RuntimeError('nor for that')\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option-either")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    status, shown, _ = verify("sink", shelf, "-k", QUICK)
    assert status == 0, shown
    assert sorted(path.name for path in here.iterdir()) == ["conftest.py", "json.py", "pytest.ini"]
    assert os.environ["PYTEST_ADDOPTS"] == "--no-such-option-either"


def test_pytest_tests_the_same_promises(
    pytester: pytest.Pytester, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--noconftest"]
    command += ["--pyargs", "cdc_conformance"]
    uri = f"{shelf}://{tmp_path}/{{unique}}"
    of_all = ["--cdc-report", str(tmp_path / "promises.json"), "-k", QUICK]
    done = subprocess.run(
        [*command, "--cdc-sink", shelf, "--cdc-uri", uri, "--cdc-option", "partitions=2", *of_all],
        capture_output=True,
        text=True,
        check=False,
        cwd=pytester.path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"installed\.py::TestShelf\w*::test_closing_twice_is_harmless PASSED", done.stdout)
    assert re.search(rf"^sink '{shelf}' of acme-\w+ 3\.1: 2 kept, \d+ not declared$", done.stdout, re.MULTILINE)
    assert json.loads((tmp_path / "promises.json").read_text())["counts"]["passed"] == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--pyargs", "cdc_conformance"], "--pyargs cdc_conformance needs --cdc-sink NAME, --cdc-encoder NAME or"),
        (["--cdc-sink", "cloudstorage"], "sink 'cloudstorage' needs a URI: --cdc-uri 'file://…/{unique}'"),
        (["--cdc-sink", "a", "--cdc-encoder", "b"], "--cdc-sink and --cdc-encoder cannot be combined; keep one of"),
        (["--cdc-encoder", "json", "--cdc-uri", "x://"], "an encoder has no URI; omit --cdc-uri"),
        (["--cdc-sink", "cloudstorage", "--cdc-uri", "file:///x"], "--cdc-uri 'file:///x/{unique}'"),
    ],
)
def test_pytest_reports_missing_arguments(pytester: pytest.Pytester, arguments: list[str], complaint: str) -> None:
    result = pytester.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert complaint in result.stderr.str()


def test_results_are_coloured_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _coloured("  FAIL order per key") == "  \x1b[31mFAIL\x1b[0m order per key"
    monkeypatch.setenv("NO_COLOR", "1")
    assert _coloured("  FAIL order per key") == "  FAIL order per key"
