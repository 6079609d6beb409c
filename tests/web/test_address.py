"""Where a server listens, and which names it answers to."""

from __future__ import annotations

import pytest

from cdc_core.errors import ConfigError
from cdc_core.web.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9464", "127.0.0.1", 9464), ("[::1]:0", "::1", 0), ("db-1.lan:80", "db-1.lan", 80)],
)
def test_an_address_is_written_as_it_is_read(text: str, host: str, port: int) -> None:
    address = Address.parse(text, option="--metrics")
    assert (address.host, address.port, str(address)) == (host, port, text)


@pytest.mark.parametrize("text", ["shop.toml", "9464", ":9464", "host:", "host:http", "::1:9464", "host:99999", "[]:1"])
def test_what_is_no_address_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not HOST:PORT, such as 127.0.0.1:9464; write --metrics=HOST:PORT"):
        Address.parse(text, option="--metrics")


@pytest.mark.parametrize(
    ("bound", "header", "served"),
    [
        ("127.0.0.1:9464", "127.0.0.1:9464", True),
        ("127.0.0.1:9464", "localhost:9464", True),
        ("127.0.0.1:9464", "LOCALHOST", True),
        ("127.0.0.1:9464", "[::1]:9464", True),
        ("127.0.0.1:9464", "rebound.example:9464", False),
        ("127.0.0.1:9464", "127.0.0.1.example", False),
        ("127.0.0.1:9464", "localhost.example:9464", False),
        ("127.0.0.1:9464", "", False),
        ("10.0.0.5:9464", "10.0.0.5:9464", True),
        ("10.0.0.5:9464", "localhost:9464", False),
        ("node-a.lan:9464", "node-a.lan:9464", True),
        ("[fd00::5]:9464", "[fd00::5]:9464", True),
        ("[fd00::5]:9464", "[fd00::5]", True),
        ("[fd00::5]:9464", "[fd00::6]:9464", False),
        ("0.0.0.0:9464", "anything.example", True),
        ("[::]:9464", "anything.example", True),
    ],
)
def test_only_the_names_it_listens_at_are_answered(bound: str, header: str, served: bool) -> None:
    assert Address.parse(bound, option="--metrics").answers_to(header) is served
