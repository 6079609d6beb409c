"""`cdc serve` and `cdc token`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cdc_testing.command import Cdc

import cdc_core
from cdc_core.cli.main import main
from cdc_core.store.progress import store_url
from cdc_core.web.access.callers import Callers


@contextmanager
def served(store: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `cdc serve` in a process of its own; give it and its URL."""
    command = [sys.executable, "-m", "cdc_core", "serve", "--store", store, "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"serving at (\S+)$", line)
        assert found, line + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def test_a_server_answers_until_it_is_told_to_end(tmp_path: Path, cdc: Cdc) -> None:
    tokens = tmp_path / "tokens"
    token = cdc("token", "grafana", "--role", "view", "--tokens", tokens).out.strip()
    with served(store_url(tmp_path), "--tokens", str(tokens)) as (process, url):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/metrics", timeout=30)
        request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert "cdc_store_up 1.0" in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_token_is_printed_once_and_only_its_hash_is_kept(tmp_path: Path, cdc: Cdc) -> None:
    path = tmp_path / "tokens"
    made = {}
    for name, role in (("ann", "admin"), ("grafana", "view")):
        made[name] = cdc("token", name, "--role", role, "--tokens", path).out.strip()
    assert made["ann"] != made["grafana"]
    assert min(map(len, made.values())) > 40
    text = path.read_text()
    assert not [token for token in made.values() if token in text or token.removeprefix("cdc_") in text]
    assert path.stat().st_mode & 0o007 == 0
    callers = Callers(path)
    for name, role in (("ann", "ADMIN"), ("grafana", "VIEW")):
        found = callers.by_token(made[name])
        assert found is not None
        assert (found.name, found.role.name) == (name, role)


def test_a_line_is_added_behind_one_without_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens"
    path.write_text("robot operate subject:CN=robot")
    assert main(["token", "ann", "--role", "admin", "--tokens", str(path)]) == 0
    callers = Callers(path)
    assert callers.by_subject("CN=robot")
    assert callers.by_token(capsys.readouterr().out.strip())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["ann"], "'ann' already exists; delete its line first, or choose another name"),
        (["a b"], "'a b' is not a valid name; use 1 to 64 of the characters A-Z a-z 0-9 _ . @ -"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, cdc: Cdc, words: list[str], why: str) -> None:
    path = tmp_path / "tokens"
    assert main(["token", "ann", "--role", "admin", "--tokens", str(path)]) == 0
    before = path.read_text()
    assert why in cdc.refused("token", *words, "--role", "view", "--tokens", path)
    assert path.read_text() == before


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "ann", "--role", "admin", "--tokens", str(tmp_path / "none" / "tokens")]) == 2
    assert "this file cannot be written: No such file or directory; choose another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "shop.toml"], "error: --listen shop.toml: this is not HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "error: --listen 0.0.0.0:0: other hosts can connect there without authentication"),
        (["--tokens", "/nowhere"], "error: --tokens /nowhere: this file cannot be read: No such file or directory"),
        (["--tls-cert", "a.pem"], "error: the server: 'tls_cert' and 'tls_key' must be set together; set both"),
        (["--max-body", "much"], "error: the server: option 'max_body' is 'much'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, cdc: Cdc, options: list[str], why: str) -> None:
    said = cdc.refused("serve", "--store", store_url(tmp_path), *options).splitlines()
    assert (len(said), said[0].startswith(why)) == (1, True), said


def test_a_port_that_is_taken_ends_the_command(tmp_path: Path, taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", store_url(tmp_path), "--listen", taken]) == 2
    assert f"--listen {taken}: this process cannot listen there: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["serve"], ["token", "ann", "--role", "view"]], ids=["serve", "token"])
def test_without_the_libraries_the_error_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc, words: list[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith(("starlette", "uvicorn", "cdc_core.web"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(cdc_core, "web", cdc_core.web)  # another module takes its place, until the end of the test
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setenv("CDC_STORE", store_url(tmp_path))
    monkeypatch.setenv("CDC_TOKENS", str(tmp_path / "tokens"))
    assert "error: a server needs more libraries: pip install 'cdc-core[serve]'" in cdc.refused(*words)


def test_a_node_that_does_not_listen_takes_no_options_about_access(tmp_path: Path, cdc: Cdc) -> None:
    words = ["node", "--store", store_url(tmp_path), "--directory", str(tmp_path / "node"), "--max-body", "1MB"]
    assert "--max-body requires --listen HOST:PORT" in cdc.refused(*words)
    assert not os.environ.get("CDC_LISTEN")
