"""Secrets of a configuration: references, which no answer and no log resolves."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.components import host, sink
from cdc_testing.rest_rig import ENVIRON, Rest, config, rest_plugins, serving_rest


def test_secrets_are_references_masked_and_kept(rest: Rest, control: Path) -> None:
    given = config(control) | {"sink": "shelf://x?pin=${PIN}", "format": "plain", "source": "paper://u:${PW}@h/d"}
    given.pop("control")
    rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=given)
    masked = given | {"source": "paper://u:***@h/d"}
    rest.ask("PUT", "/connectors/orders/config?check=false", status=200, json=masked | {"max_step_rows": "9"})
    assert rest.get("/connectors/orders/config")["source"] == given["source"]
    for wrong in ({"source": "paper://u:***@elsewhere/d"}, {"header": "***"}):
        text = rest.message("PUT", "/connectors/fresh/config", status=400, json={**given, **wrong})
        assert "instead of a secret" in text or "plain text" in text
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
        {"tables": '["\\u0024{PW}"]'},
        {"table.counter": '{"columns": ["${PW}"]}'},
        {"table.counter": '{"columns": ["\\u0024{PW}"]}'},
        {"source": '["\\u0024{PW}"]'},
        {"sink": "journal://x?${PW}"},
        {"metrics_label": "${PW}"},
        {"Cursor": "${PW}"},
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


@pytest.mark.parametrize("key", ["sink", "dead_letter"])
@pytest.mark.parametrize("scheme", ["hook", " hook", "unknown"])
def test_validation_echoes_no_path_that_may_be_secret(tmp_path: Path, control: Path, key: str, scheme: str) -> None:
    hooks = host(*rest_plugins().components(), sink("hook", schemes=("hook",), secret_path=True))
    with serving_rest(tmp_path / "store", plugins=hooks) as rest:
        given = {**config(control), "name": "orders", key: f"{scheme}://h/lit-eral"}
        text = rest.client.put("/connector-plugins/cdc.Changefeed/config/validate", json=given).text
        assert "lit-eral" not in text
        assert "[hidden]" in text


def definitions(control: Path, reference: str) -> list[dict[str, str]]:
    """Return configurations with *reference* where an error, or the store, would show what it stands for."""
    encoded = reference.replace("$", "\\u0024")
    changes: list[dict[str, str]] = [
        {key: reference} for key in ("tables", "format", "source", "sink", "query", "nonsense")
    ]
    changes += [{"sink": f"journal://{reference}"}, {"tables": f'["{encoded}"]'}, {"source": f'["{encoded}"]'}]
    changes += [
        {"table.counter": f'{{"columns": ["{encoded}"]}}'},
        {"spark.x": reference},
        {"options.tables": reference},
    ]
    return [{**config(control), "name": "orders", **change} for change in changes]


def answers(rest: Rest, given: dict[str, str]) -> str:
    """Return all that the server says about a configuration, and about the connector if it becomes one."""
    validated = rest.client.put("/connector-plugins/cdc.Changefeed/config/validate", json=given).text
    form = {key: text for key, text in given.items() if key != "connector.class"}
    texts = [validated, rest.client.post("/ui/new/validate", data=form).text]
    answer = rest.client.put("/connectors/orders/config?check=false", json=given)
    paths = ("/v1/jobs/orders", "/connectors/orders", "/ui/changefeeds/orders", "/v1/events")
    shown = [rest.client.get(path).text for path in paths if answer.is_success]
    return "\n".join([*texts, answer.text, *shown])


def test_a_request_reads_no_file_that_the_operator_has_not_allowed(rest: Rest, control: Path) -> None:
    secret = control / "passwd"
    secret.write_text("root:x:0:0:Super-User-Of-All:/root:/bin/bash\n")
    for path in (str(secret), f"/../{secret}", f"{control}/./passwd"):
        for given in definitions(control, f"${{file:{path}}}"):
            said = answers(rest, given)
            assert "Super-User-Of-All" not in said
            assert "which is not in a directory that the server" in said or "cannot have references" in said
    assert rest.get("/v1/jobs") == []


@pytest.mark.parametrize("key", ["table.counter", "table.public.t", "source", "tables"])
def test_a_file_that_is_not_allowed_is_not_read_however_its_reference_is_written(
    rest: Rest, control: Path, key: str
) -> None:
    """What is read is masked, so the answer would tell whether a caller has guessed what the file holds."""
    (control / "passwd").write_text("Super-User-Of-All\n")
    texts = f'["\\u0024{{file:{control}/passwd}}", "\\u0024{{file:/Super-User-Of-All}}"]'
    for value in (f'{{"columns": {texts}}}', f'{{"a": [{{"\\u0062": {texts}}}]}}') if "." in key else (texts,):
        given = {**config(control), "name": "orders", key: value}
        said = rest.client.put("/connector-plugins/cdc.Changefeed/config/validate", json=given).text
        assert "refers to the file '/Super-User-Of-All', which is not in a directory" in said


def test_a_request_reads_files_below_a_directory_that_is_allowed_and_no_others(control: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "running").write_text("beside-the-directory")
    (tmp_path / "run" / "pw").write_text("Hidden-Pass\nSecond-Line\n")
    (tmp_path / "run" / "link").symlink_to(tmp_path / "running")
    with serving_rest(tmp_path / "store", allowed_paths=[str(tmp_path / "run")]) as rest:
        good = {**config(control), "name": "orders", "source": f"counter://u:${{file:{tmp_path}/run/pw}}@h/shop"}
        for path in ("running", "run/../running", "run/link", "run/nested/../../running"):
            said = answers(rest, {**good, "source": f"counter://u:${{file:{tmp_path}/{path}}}@h/shop"})
            assert "which is not in a directory" in said
            assert "beside-the-directory" not in said
        rest.ask("PUT", "/connectors/orders/config?check=false", status=201, json=good)
        for given in definitions(control, f"${{file:{tmp_path}/run/pw}}"):
            said = answers(rest, given).lower()
            for line in ("hidden-pass", "second-line"):
                assert line not in said


@pytest.mark.parametrize(
    "value", ["Mixed-CaseSecret", "first-line\nSecond-Line", "a-long-word, other-long-word=x%2Fy-long-word"]
)
def test_no_answer_holds_a_value_in_another_case_or_a_line_or_word_of_it(
    tmp_path: Path, control: Path, value: str
) -> None:
    with serving_rest(tmp_path / "store", MIXED=value) as rest:
        for given in definitions(control, "${MIXED}"):
            said = answers(rest, given).lower()
            for word in (
                "mixed-casesecret",
                "first-line",
                "second-line",
                "a-long-word",
                "other-long-word",
                "y-long-word",
            ):
                assert word not in said, given
