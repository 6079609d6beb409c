"""Secrets of a configuration: references, which no answer and no log resolves."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.rest_rig import ENVIRON, Rest, config


def test_secrets_are_references_masked_and_kept(rest: Rest, control: Path) -> None:
    given = config(control) | {"sink": "shelf://x?pin=${PIN}", "format": "plain", "source": "paper://u:${PW}@h/d"}
    given.pop("control")
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=given)
    masked = given | {"source": "paper://u:***@h/d"}
    rest.ask("PUT", "/connectors/orders/config?check=false", status=200, json=masked | {"max_step_rows": "9"})
    assert rest.get("/connectors/orders/config")["source"] == given["source"]
    for wrong in ({"source": "paper://u:***@elsewhere/d"}, {"header": "***"}):
        text = rest.message("PUT", "/connectors/fresh/config", status=400, json={**given, **wrong})
        assert "in place of a secret" in text or "plain text" in text
    literal = rest.client.put("/connectors/fresh/config", json={**given, "source": "paper://u:plain-text-pw@h/d"})
    assert (literal.status_code, "plain-text-pw" in literal.text) == (400, False)
    assert "secret in plain text" in literal.json()["message"]


def test_secrets_of_a_new_configuration_are_masked_in_logs(rest: Rest, control: Path) -> None:
    assert ENVIRON["PW"] not in rest.kept
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=config(control))
    assert ENVIRON["PW"] in rest.kept
    changed = {"source": "counter://reader:${PIN}@host/shop"}
    rest.ask("PATCH", "/connectors/orders/config?check=false", status=200, json=changed)
    assert ENVIRON["PIN"] in rest.kept


@pytest.mark.parametrize(
    "change",
    [
        {"source": "${PW}"},
        {"source": "paper://${PW}"},
        {"tables": "${PW},${PW}"},
        {"format": "${PIN}"},
        {"sink": "${PIN}://x"},
        {"max_step_rows": "${PW}"},
        {"${PW}": "x"},
        {"resolved": "'${PW}'"},
        {"execution_locality": "${PW}"},
        {"topic": "{${PW}}"},
        {"source": "nosuch://u:lit%2Feral@h/d?password=liter'al"},
        {"api_token": 'lit"eral', "nonsense": "${PIN}"},
    ],
)
def test_no_answer_holds_what_a_reference_stands_for(rest: Rest, control: Path, change: dict[str, str]) -> None:
    given = {**config(control), "name": "orders", **change}
    for method, path in (
        ("PUT", "/connectors/orders/config"),
        ("PUT", "/connector-plugins/cdc.Changefeed/config/validate"),
    ):
        text = rest.client.request(method, path, json=given).text
        for secret in (*ENVIRON.values(), "lit%2Feral", "lit/eral", "liter'al", 'lit\\"eral'):
            assert secret not in text
