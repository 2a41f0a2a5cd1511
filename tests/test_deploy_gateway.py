"""deploy/ for the gateway: every file is read by what it is for, and names what there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from headrace.cli.main import cli
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.telemetry.request_series import RequestSeries
from headrace.gateway.telemetry.traffic_series import TrafficSeries
from headrace.telemetry.series import CounterSeries
from tests.gateway.harness import ask, gateway
from tests.gateway.request_log.parts import log_of
from tests.gateway.telemetry.scraped import settings
from tests.gateway.telemetry.test_documented import documented
from tests.test_deploy import (
    DEPLOY,
    GATEWAY_DASHBOARD,
    SCRAPED_LABELS,
    check_names,
    dashboard_expressions,
    load,
    selectors,
)

RULES = DEPLOY / "prometheus" / "headrace-gateway.rules.yml"
SERVICE = DEPLOY / "systemd" / "headrace-gateway.service"
KUBERNETES = DEPLOY / "kubernetes" / "headrace-gateway.yaml"
ALERTS = [rule for group in load(RULES)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one["alert"])
def test_an_alert_names_metrics_that_there_are(alert: dict[str, object]) -> None:
    known = documented()  # what a test of the page holds to be what is served
    for selector in selectors(str(alert["expr"])):
        name = re.sub(r"_(bucket|sum|count)$", "", selector.name)
        assert selector.name == "up" or name in known, selector.name
        for matcher in selector.matchers.matchers:
            assert matcher.name == "job" or f"`{matcher.name}`" in known[name][1], matcher.name
            assert matcher.name == "job" or f"`{matcher.value}`" in known[name][1], matcher.value


@pytest.fixture
async def exported(tmp_path: Path) -> dict[str, set[str]]:
    """Every sample's name with the labels it comes with: those that there always are as a gateway
    tells them, those of requests as their series have them."""
    accounts = Accounts(MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom)
    config = settings("http://127.0.0.1:9", access={"metrics_key": "k"})
    log = log_of(folder=tmp_path)
    built = gateway(config, [], accounts=accounts, request_log=log)
    key = {"authorization": "Bearer k"}
    told = await ask(built.app, b"", path="/metrics", method="GET", headers=key)
    log.close()
    names: dict[str, set[str]] = {"headrace:http_requests_total": {"endpoint", "status"}}
    for family in text_string_to_metric_families(told.body.decode()):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    for series in (*RequestSeries().all(), *TrafficSeries().all()):
        assert f"# HELP {series.name}" in told.body.decode()
        if isinstance(series, CounterSeries):
            names[series.name + "_total"] = {*series.labels}
        else:
            names[series.name + "_bucket"] = {*series.labels, "le"}
            names[series.name + "_sum"] = names[series.name + "_count"] = {*series.labels}
    return names


@pytest.mark.parametrize("expression", [*dashboard_expressions(GATEWAY_DASHBOARD)])
def test_the_board_names_metrics_that_there_are(
    expression: str, exported: dict[str, set[str]]
) -> None:
    check_names(expression, exported)


def test_the_variables_of_the_board_are_of_labels_that_there_are(
    exported: dict[str, set[str]],
) -> None:
    variables = json.loads(GATEWAY_DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]
    asked = {one["name"]: one["query"] for one in variables if one["type"] == "query"}
    assert {"model", "target"} <= set(asked)
    for query in asked.values():
        found = re.fullmatch(r"label_values\(([\w:]+), (\w+)\)", query)
        assert found is not None, query
        assert found[2] in exported[found[1]] | SCRAPED_LABELS


def test_alerts_are_whole() -> None:
    assert len({one["alert"] for one in ALERTS}) == len(ALERTS)
    for one in ALERTS:
        assert one["labels"]["severity"] in ("warning", "critical")
        assert set(one["annotations"]) == {"summary", "description"}


def test_the_file_of_kubernetes_is_right(tmp_path: Path) -> None:
    config, deployment, service = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    (tmp_path / "gateway.yaml").write_text(config["data"]["gateway.yaml"])
    names = ("OPENAI_API_KEY", "GATEWAY_MASTER_KEY", "GATEWAY_METRICS_KEY", "CI_KEY")
    environ = {one: f"{one}-0123456789abcdef0123" for one in names}
    environ["GATEWAY_REDIS"] = "redis://redis:6379/0"
    told = CliRunner().invoke(
        cli, ["gateway", "check", "--config", str(tmp_path / "gateway.yaml")], env=environ
    )
    assert told.stdout == "valid: 1 model, 1 provider\n", told.output
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for probe, path in {"readiness": "/ready", "liveness": "/health"}.items():
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
    port = yaml.safe_load(config["data"]["gateway.yaml"])["listen"]["port"]
    assert {"name": "http", "containerPort": port} in container["ports"]
    # Bodies take three times their bytes; what else there is has a quarter of the memory.
    most_bytes = yaml.safe_load(config["data"]["gateway.yaml"])["listen"]["max_bodies_bytes"]
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert 3 * most_bytes <= 0.75 * 2**30
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    check_command(container["command"] + container["args"])


def test_systemd_starts_what_there_is() -> None:
    text = SERVICE.read_text(encoding="utf-8")
    (start,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.M)
    check_command(start.split())
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    if shutil.which("systemd-analyze") is None:
        return
    done = subprocess.run(
        ["systemd-analyze", "verify", str(SERVICE)], capture_output=True, text=True, check=False
    )
    own = [line for line in done.stderr.splitlines() if SERVICE.name in line]
    assert not [line for line in own if "not executable" not in line], done.stderr


def check_command(words: list[str]) -> None:
    assert Path(words[0]).name == "headrace" and words[1] == "gateway"
    known = CliRunner().invoke(cli, ["gateway", "--help"]).output
    for flag in (word for word in words if word.startswith("--")):
        assert re.search(rf"{flag}\b", known), flag
