from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.masking import is_secret_name
from cdc_core.spark import encryption
from cdc_core.spark.encryption import encryption_settings, require_encryption, warn_of_open_masters
from cdc_core.spark.runner import Runner

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
    assert encryption_settings(spark) == settings


@pytest.mark.parametrize("spark", [{}, {"master": "local[2]"}, {"master": "local-cluster[2,1,1024]"}])
def test_an_application_on_one_host_has_a_secret_of_its_own_that_no_command_line_shows(
    spark: Mapping[str, str],
) -> None:
    first, second = (encryption_settings(spark).items() - ENCRYPTED.items() for _ in range(2))
    [(name, secret)], [(_, other)] = first, second
    assert (name, is_secret_name(name), len(secret)) == ("spark.authenticate.secret", True, 64)
    assert secret != other


class _Rest(BaseHTTPRequestHandler):
    """Spark's answer to whoever asks for a driver that it does not have."""

    def do_GET(self) -> None:
        open_ = self.server.server_address[0] == "127.0.0.1"  # of another, a filter asks for a token first
        answer = b'{"action": "SubmissionStatusResponse", "serverSparkVersion": "4.3.0", "success": false}'
        self.send_response(200 if open_ else 403)
        self.end_headers()
        self.wfile.write(answer if open_ else b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Masters at 127.0.0.1 and 127.0.0.2 that answer at the port for drivers, the second one not to everybody."""
    with ExitStack() as stack:
        port = 0
        for host in ("127.0.0.1", "127.0.0.2"):
            server = stack.enter_context(HTTPServer((host, port), _Rest))
            port = server.server_port
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        monkeypatch.setattr(encryption, "_REST_PORT", port)
        yield


@pytest.mark.usefixtures("rest")
def test_a_master_that_runs_drivers_for_everybody_is_named(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_open_masters({"master": "spark://127.0.0.3:7077,127.0.0.1:7078,127.0.0.2:7079"})
    [said] = caplog.messages
    assert said.startswith("the master spark://127.0.0.1:7078 accepts drivers from anyone at port ")
    assert said.endswith("; set spark.master.rest.enabled to false in its properties")
    warn_of_open_masters({"master": "local[2]"})
    warn_of_open_masters({})
    assert len(caplog.messages) == 1


def test_a_standalone_cluster_needs_a_decision(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"master 'spark://h:7077': .* in plain text; set spark.authenticate = "):
        Runner(tmp_path, spark={"master": "spark://h:7077"})
