"""docs/security.md: its commands let in whom they should, and its tables are the code's."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path

import click
import pytest
from cdc_sink_kafka.demo.certificates import Certificates, make_certificates
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.pages import Page
from cdc_testing.runs import eventually
from cdc_testing.web_rig import TOKENS, Web, serving

from cdc_core.cli.main import cdc, main
from cdc_core.cli.serving import serving as command_serving
from cdc_core.cli.session import CliSession
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore
from cdc_core.web import server
from cdc_core.web.access import guard
from cdc_core.web.access.callers import ROLES, read_callers

PAGE = Page("security.md")
COMMANDS = [line[2:] for block in PAGE.blocks("console") for line in block.splitlines() if line.startswith("$ ")]


def commands(beginning: str) -> list[str]:
    return [command for command in COMMANDS if command.startswith(beginning)]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def served(command: str) -> Iterator[str]:
    """Run `cdc serve` as *command* says, at a free port; give its URL."""
    _, found, words = cdc.resolve_command(click.Context(cdc), shlex.split(command)[1:])
    assert found is not None
    given = found.make_context("serve", list(words)).params
    listen = given.pop("listen").replace(":8083", ":0")
    store = ProgressStore(given.pop("store"))
    store.open()
    with command_serving(CliSession(), listen, given, store=store.url, plugins=PluginHost.load()) as url:
        assert url is not None
        yield url


def curl(command: str, url: str, token: str) -> str:
    """Return what a `curl` of the page prints, of which the port is that of *url*."""
    command = command.replace(":8083", f":{url.rpartition(':')[2]}").replace("$TOKEN", token)
    words = [*shlex.split(command), "--silent", "--fail-with-body"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_commands_of_the_page_let_in_whom_they_should(capsys: pytest.CaptureFixture[str]) -> None:
    made = {}
    for command in commands("cdc token"):
        assert main(shlex.split(command)[1:]) == 0
        made[shlex.split(command)[2]] = capsys.readouterr().out.strip()
    assert set(made) == {"ann", "grafana"}
    [certificate] = commands("openssl req")
    subprocess.run(shlex.split(certificate), check=True, capture_output=True, timeout=60)
    plain, encrypted = commands("curl")
    local = [command for command in commands("cdc serve") if "sqlite" in command]
    assert len(local) == 3
    for command in local:
        with served(command) as url:
            text = curl(encrypted if "--tls-cert" in command else plain, url, made["grafana"])
            assert "cdc_store_up 1.0" in text


def test_the_page_prints_the_subject_of_a_certificate_as_the_file_of_tokens_has_it(tmp_path: Path) -> None:
    made = "openssl req -x509 -newkey rsa:2048 -noenc -subj /O=Shop/CN=robot -keyout robot.key -out robot.pem"
    subprocess.run(shlex.split(made), check=True, capture_output=True, timeout=60)
    [command] = commands("openssl x509")
    done = subprocess.run(shlex.split(command), check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout in PAGE.text
    [example] = PAGE.blocks("text")
    (tmp_path / "tokens").write_text(example)
    callers = {caller.name: caller for caller in read_callers(tmp_path / "tokens")}
    assert callers["robot"].proof == "subject:" + done.stdout.strip().removeprefix("subject=")
    assert set(callers) == {"ann", "robot"}


def test_the_roles_of_the_page_are_those_of_the_code() -> None:
    assert PAGE.first_cells("Tokens") == list(ROLES)


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    limits = PAGE.section("Limits")
    assert re.search(rf"^\| path, query and headers of a request \| {guard.MAX_HEAD // 1024} KB ", limits, re.MULTILINE)
    assert re.search(rf"^\| time without a request on a connection \| {server._KEEP_ALIVE_S} s ", limits, re.MULTILINE)


# A reverse proxy


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "certificates")


@pytest.fixture
def proxied(tmp_path: Path, certificates: Certificates) -> Iterator[tuple[Web, int]]:
    """A server behind nginx with the configuration of the page, and the port of nginx."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    [options] = [command for command in commands("cdc serve") if "--public-url" in command]
    words = shlex.split(options)
    public_url, proxy = (words[words.index(name) + 1] for name in ("--public-url", "--trusted-proxy"))
    with serving(tmp_path, public_url=public_url, trusted_proxy=proxy, max_rate=5) as web:
        port = free_port()
        [block] = PAGE.blocks("nginx")
        for old, new in {
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "/etc/nginx/cdc.example.pem": str(certificates.server_cert),
            "/etc/nginx/cdc.example.key": str(certificates.server_key),
            "127.0.0.1:8083": f"127.0.0.1:{web.port}",
        }.items():
            assert old in block
            block = block.replace(old, new)
        paths = "".join(
            f"{each}_temp_path {tmp_path}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        head = f"daemon off; master_process off; error_log {tmp_path}/error.log; pid {tmp_path}/pid; events {{}}"
        (tmp_path / "nginx.conf").write_text(f"{head}\nhttp {{ access_log off; {paths}\n{block} }}\n")
        process = subprocess.Popen([program, "-p", tmp_path, "-c", tmp_path / "nginx.conf"], stderr=sys.stderr)
        try:
            eventually("nginx listens", lambda: listens(port))
            yield web, port
        finally:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def ask(
    port: int, certificates: Certificates, method: str, path: str, headers: dict[str, str], *, source: str = "127.0.0.1"
) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    connection = HTTPSConnection("localhost", port, timeout=30, context=context, source_address=(source, 0))
    connection.request(method, path, headers={"Host": "cdc.example", **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_browser_works_through_the_proxy_of_the_page(proxied: tuple[Web, int], certificates: Certificates) -> None:
    _, port = proxied
    cookie = {"Cookie": f"cdc_token={TOKENS['boss']}"}
    assert ask(port, certificates, "GET", "/view", {})[0] == 401
    assert ask(port, certificates, "GET", "/view", cookie) == (200, '{"user":"boss","role":"ADMIN","secure":true}')
    own = {**cookie, "Origin": "https://cdc.example"}
    assert ask(port, certificates, "DELETE", "/admin", own)[0] == 200
    for origin in ("https://evil.example", "http://cdc.example", "null"):
        assert ask(port, certificates, "DELETE", "/admin", {**cookie, "Origin": origin})[0] == 403
    assert ask(port, certificates, "DELETE", "/admin", cookie)[0] == 403


def test_clients_behind_the_proxy_of_the_page_have_a_rate_each(
    proxied: tuple[Web, int], certificates: Certificates
) -> None:
    _, port = proxied

    def status(source: str, **headers: str) -> int:
        return ask(port, certificates, "GET", "/view", headers, source=source)[0]

    eventually("one client is told to come back later", lambda: status("127.0.0.2") == 429)
    assert status("127.0.0.3") == 401
    forged = [status("127.0.0.2", **{"X-Forwarded-For": f"192.0.2.{number}"}) for number in range(3)]
    assert 429 in forged
