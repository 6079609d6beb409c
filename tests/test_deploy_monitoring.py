"""`deploy/prometheus` and `deploy/grafana`: metrics exist, expressions are parsed, each alert fires when it must."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cdc_testing.imports import ROOT
from cdc_testing.pages import Page
from cdc_testing.stored import DEFINITION, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.metrics import METRICS, SOURCE_BYTES, STATE, labels_of
from cdc_core.web.watched import Watched


@functools.cache
def _program() -> str:
    done = subprocess.run([ROOT / ".ci" / "promtool"], capture_output=True, text=True)
    assert done.returncode == 0, f"promtool is missing: {done.stderr}install Debian's package prometheus"
    return done.stdout.strip()


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool and return what came of it."""
    return subprocess.run([_program(), *arguments], capture_output=True, text=True)


def check_expressions(expressions: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Have *expressions* parsed, as rules of a file in *directory*."""
    rules = [{"record": f"parsed:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "parsed", "rules": rules}]}))
    return promtool("check", "rules", file)


ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
RULES = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
GRAPHED = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
SERIES = {
    name
    for metric in METRICS
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind == "histogram"
        else [metric.name]
    )
}


def unknown(expression: str) -> set[str]:
    return set(re.findall(r"\bcdc_\w+", expression)) - SERIES


@pytest.mark.parametrize("expression", [*GRAPHED, *(rule["expr"] for rule in RULES)])
def test_every_metric_that_is_asked_for_exists(expression: str) -> None:
    assert unknown(expression) == set()


def test_the_rules_are_parsed_by_prometheus() -> None:
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{len(RULES)} rules found" in done.stdout


def test_the_expressions_of_the_dashboard_are_parsed_by_prometheus(tmp_path: Path) -> None:
    done = check_expressions([text.replace("$__rate_interval", "5m") for text in GRAPHED], tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_broken_expression_or_an_unknown_metric_is_noticed(tmp_path: Path) -> None:
    assert check_expressions(["sum by (changefeed) (rate(cdc_changefeed_up[5m])"], tmp_path).returncode != 0
    assert unknown('rate(cdc_changefeed_emitted_row_total{changefeed="a"}[5m])') == {"cdc_changefeed_emitted_row_total"}


def test_every_alert_is_explained_on_the_page_and_says_what_to_do() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    for rule in RULES:
        assert f"`{rule['alert']}`" in page
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")


def test_prometheus_accepts_what_the_page_shows(tmp_path: Path) -> None:
    config, own = Page("alerts.md").blocks("yaml")
    (tmp_path / "prometheus.yaml").write_text(config)
    (tmp_path / "own.yaml").write_text(own)
    shutil.copy(ALERTS, tmp_path)
    for kind, name in (("config", "prometheus.yaml"), ("rules", "own.yaml")):
        done = promtool("check", kind, tmp_path / name)
        assert done.returncode == 0, done.stderr + done.stdout
    assert unknown(own) == set()


OF = '{changefeed="orders",label=""'
FIRING: dict[str, dict[str, str]] = {
    "CdcChangefeedFailed": {f'cdc_changefeed_state{OF},state="failed"}}': "1x60"},
    "CdcChangefeedPaused": {f'cdc_changefeed_state{OF},state="paused"}}': "1x120"},
    "CdcChangefeedNotRunning": {
        f'cdc_changefeed_state{OF},state="running"}}': "1x60",
        f"cdc_changefeed_up{OF}}}": "0x60",
    },
    "CdcChangefeedBehind": {f"cdc_changefeed_lag_seconds{OF}}}": "0+60x60"},
    "CdcSourceSilent": {f"cdc_changefeed_source_lag_seconds{OF}}}": "0+60x60"},
    "CdcChangefeedRetrying": {f'cdc_changefeed_retries_total{OF},cause="sink"}}': "0+1x60"},
    "CdcCommitLatencyHigh": {
        f'cdc_changefeed_commit_latency_seconds_bucket{OF},le="60.0"}}': "0+1x60",
        f'cdc_changefeed_commit_latency_seconds_bucket{OF},le="120.0"}}': "0+2x60",
        f'cdc_changefeed_commit_latency_seconds_bucket{OF},le="+Inf"}}': "0+2x60",
    },
    "CdcHistoryRetained": {f"cdc_changefeed_protected_age_seconds{OF}}}": "86000+60x60"},
    "CdcLogRetained": {f'cdc_changefeed_source_bytes{OF},gauge="retained"}}': "60000000000x60"},
    "CdcLogNotMeasured": {f"cdc_changefeed_source_age_seconds{OF}}}": "0+60x60"},
    "CdcHistoryNotReleased": {f"cdc_changefeed_unreleased_steps{OF}}}": "0+1x60"},
    "CdcDeadLetters": {f"cdc_changefeed_dead_letters_waiting{OF}}}": "3x60"},
    "CdcStoreUnreadable": {'cdc_store_up{instance="a"}': "0x60"},
    "CdcNodeFailover": {'cdc_node_failovers_total{instance="a"}': "0x50 1x20"},
    "CdcNodeDown": {'up{job="cdc",instance="a"}': "0x60"},
}
"""What makes each alert fire within an hour, or two: series by minute."""


@pytest.mark.slow
def test_each_alert_fires_for_what_it_is_about_and_no_other_does(tmp_path: Path) -> None:
    assert FIRING.keys() == {rule["alert"] for rule in RULES}
    alone: list[dict[str, Any]] = []
    for alert, series in FIRING.items():
        at = "110m" if alert == "CdcChangefeedPaused" else "55m"
        cases = [{"eval_time": at, "alertname": other, "exp_alerts": []} for other in FIRING if other != alert]
        alone.append(
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": cases,
            }
        )
    tests = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": alone}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stderr + done.stdout
    for group in alone:  # now each is expected not to fire, and must
        [missing] = FIRING.keys() - {case["alertname"] for case in group["alert_rule_test"]}
        group["alert_rule_test"] = [{**group["alert_rule_test"][0], "alertname": missing}]
        file.write_text(yaml.safe_dump({**tests, "tests": [group]}))
        assert f"alertname: {missing}" in promtool("test", "rules", file).stderr, missing


@pytest.mark.slow
def test_the_log_of_a_paused_job_is_alerted_on(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path))
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    Changefeeds(store).pause("orders", "maintenance")
    store.progress.save("orders", epoch := store.changefeeds.begin_attempt("orders"), progress())
    store.progress.save_gauges("orders", epoch, {"retained_bytes": 60e9})
    series = {}
    for sample in Watched(store.url).samples():
        if sample.metric in (SOURCE_BYTES, STATE):
            labels = zip(labels_of(sample.metric), sample.labels, strict=True)
            shown = ",".join(f'{name}="{value}"' for name, value in labels)
            series[f"{sample.metric.name}{{{shown}}}"] = f"{float(sample.value):.0f}x60"
    case = {"eval_time": "55m", "alertname": "CdcLogRetained", "exp_alerts": []}
    group = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [case],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [group]}))
    said = promtool("test", "rules", file).stderr
    assert "alertname: CdcLogRetained" in said, "it fires, which the case does not expect"
    assert "The source retains 55.88GiB of log for changefeed orders." in said
