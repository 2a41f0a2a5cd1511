"""deploy/ for the gateway: every file is read by what it is for, and names what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from headrace.cli.main import cli
from tests.gateway.telemetry.test_documented import documented
from tests.test_deploy import DEPLOY, load, selectors

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


def test_alerts_are_whole() -> None:
    assert len({one["alert"] for one in ALERTS}) == len(ALERTS)
    for one in ALERTS:
        assert one["labels"]["severity"] in ("warning", "critical")
        assert set(one["annotations"]) == {"summary", "description"}


def test_the_file_of_kubernetes_is_right(tmp_path: Path) -> None:
    config, deployment, service = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    (tmp_path / "gateway.yaml").write_text(config["data"]["gateway.yaml"])
    names = ("OPENAI_API_KEY", "GATEWAY_MASTER_KEY", "CI_KEY")
    environ = {one: f"{one}-0123456789abcdef0123" for one in names}
    environ["GATEWAY_REDIS"] = "redis://redis:6379/0"
    told = CliRunner().invoke(
        cli, ["gateway", "check", "--config", str(tmp_path / "gateway.yaml")], env=environ
    )
    assert told.stdout == "right: 1 model, 1 provider\n", told.output
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for probe, path in {"readiness": "/ready", "liveness": "/health"}.items():
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
    port = yaml.safe_load(config["data"]["gateway.yaml"])["listen"]["port"]
    assert {"name": "http", "containerPort": port} in container["ports"]
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
