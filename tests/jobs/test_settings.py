"""What a node makes of its options."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cdc_core.errors import ConfigError
from cdc_core.jobs.settings import NodeSettings
from cdc_core.options import parse_options


def settings(**options: Any) -> NodeSettings:
    return parse_options(NodeSettings, {"name": "one", "directory": "", **options}, owner="cdc node")


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://127.0.0.2/app",
        "postgresql:///app?host=127.0.0.2",
        "postgresql:///app?host=127.0.0.2,127.0.0.3",
        "postgresql:///app?host=127.0.0.2:5432&host=127.0.0.3:5432",
    ],
)
def test_a_node_is_reached_where_it_reaches_the_store(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Socket:
        def __enter__(self) -> Socket:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def connect(self, place: tuple[str, int]) -> None:
            asked.append(place[0])

        def getsockname(self) -> tuple[str, int]:
            return ("10.0.0.1", 9)

    monkeypatch.setattr("cdc_core.jobs.settings.socket.socket", lambda *_: Socket())
    assert (settings(store=store).reached_at, asked) == ("10.0.0.1", ["127.0.0.2"])


@pytest.mark.parametrize("store", ["postgresql:///app", "postgresql:///app?host=/run/postgresql", "sqlite:////a.db"])
def test_a_node_with_a_store_of_its_own_host_is_reached_there(store: str) -> None:
    assert settings(store=store).reached_at == "127.0.0.1"


@pytest.mark.parametrize("address", ["::1", "10.0.0.1:7077"])
def test_an_address_is_one_of_ipv4_without_a_port(address: str) -> None:
    with pytest.raises(ConfigError, match="use an IPv4 address"):
        settings(store="sqlite:////a.db", address=address)


def test_a_name_is_as_long_as_the_store_keeps_it() -> None:
    assert settings(store="sqlite:////a.db", name="n" * 80).name == "n" * 80
    with pytest.raises(ConfigError, match="use 1 to 80 of the characters"):
        settings(store="sqlite:////a.db", name="n" * 81)


def test_the_memory_of_a_node_holds_an_executor() -> None:
    assert settings(store="sqlite:////a.db", memory="512mb").memory == 512 << 20
    with pytest.raises(ConfigError, match="one executor needs 512mb"):
        settings(store="sqlite:////a.db", memory="511mb")


def test_a_node_that_runs_jobs_of_some_owners_offers_no_cores_to_all() -> None:
    assert settings(store="sqlite:////a.db", owners="ann").owners == ("ann",)
    with pytest.raises(ConfigError, match="jobs of all owners use the cores"):
        settings(store="sqlite:////a.db", owners="ann", cores=1)


@pytest.mark.parametrize(("content", "reason"), [(b"\xff" * 32, "is not text"), (b"short", "needs 16 characters")])
def test_a_secret_is_text_of_some_length(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{file}: the secret of the cluster {reason}; `openssl rand"):
        settings(store="sqlite:////a.db", cluster_secret_file=str(file)).secret()


def test_a_secret_that_others_may_replace_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("only-the-nodes-know-it\n")
    for mode, found in ((0o640, "only-the-nodes-know-it"), (0o660, None)):
        file.chmod(mode)
        with nullcontext() if found else pytest.raises(ConfigError, match=f"run `chmod go-w {file}`"):
            assert settings(store="sqlite:////a.db", cluster_secret_file=str(file)).secret() == found
