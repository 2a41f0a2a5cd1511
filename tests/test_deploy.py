"""deploy/: everything parses, and no expression names a metric or label that a server has not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest
import yaml
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.engine.messages import Stats
from headrace.server.app import ROUTES
from headrace.server.state import ServerState
from tests.server.conftest import served_model
from tests.server.mock_engine import INFO, MockEngine, says

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "headrace.json"
GATEWAY_DASHBOARD = DEPLOY / "grafana" / "headrace-gateway.json"
RULES = DEPLOY / "prometheus" / "headrace.rules.yml"
DOCS = ROOT / "docs" / "metrics.md"

# What Grafana puts in place of its variables.
VARIABLES = {
    "$__rate_interval": "5m",
    "$__interval": "15s",
    "$model": "m|n",
    "$target": "a/m|b/n",
    "$instance": "127.0.0.1:4000",
}

# Of Prometheus itself: of each target, and of each sample it scrapes.
SCRAPED_METRICS = {"up"}
SCRAPED_LABELS = {"instance", "job"}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Every sample's name with the labels it comes with, of a server that has measured its limits.

    Reasons that occur only in use are given by the report.
    """
    limits = ("read_limit_bytes_per_s", "compute_limit_ops_per_s", "attention_limit_ops_per_s")
    info = msgspec.structs.replace(INFO, **dict.fromkeys(limits, 1e9))
    stats = Stats(miss_reasons={"no_match": 1}, step_s=0.5, step_bytes=1, step_operations=1)
    state = ServerState()
    state.set_model(served_model(MockEngine(says("x"), info=info, stats=stats), tokenizer=None))
    state.http.answered("/health", 200)
    names: dict[str, set[str]] = {}
    for family in state.registry.collect():
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    state.close()
    return names


def dashboard_expressions(path: Path) -> Iterator[str]:
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in load(RULES)["groups"] for rule in group["rules"]]


def documented_expressions() -> Iterator[str]:
    blocks = re.findall(r"```promql\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.S)
    for line in "".join(blocks).splitlines():
        if not line.startswith("#"):
            yield line


EXPRESSIONS = [
    *dashboard_expressions(DASHBOARD),
    *(alert["expr"] for alert in alerts()),
    *documented_expressions(),
]


def parsed(expression: str) -> Any:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, "a variable that nobody sets"
    return promql_parser.parse(expression)


def nodes(expr: Any) -> Iterator[Any]:
    """An expression and all within it."""
    yield expr
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(expr, name, None)
        if inner is not None:
            yield from nodes(inner)
    for inner in getattr(expr, "args", None) or ():
        yield from nodes(inner)


def selectors(expression: str) -> list[Any]:
    found = [one for one in nodes(parsed(expression)) if hasattr(one, "matchers")]
    assert found, "an expression of nothing"
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression: str, exported: dict[str, set[str]]) -> None:
    check_names(expression, exported)


def check_names(expression: str, exported: dict[str, set[str]]) -> None:
    """It parses, every metric exists, and so does every label it is filtered or grouped by."""
    for selector in selectors(expression):
        if selector.name in SCRAPED_METRICS:
            continue
        assert selector.name in exported, selector.name
        labels = exported[selector.name] | SCRAPED_LABELS
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels, (selector.name, matcher.name)
    known = SCRAPED_LABELS.union(
        *(exported.get(selector.name, ()) for selector in selectors(expression))
    )
    for group in re.findall(r"\b(?:by|without) \(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= known, expression


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *dashboard_expressions(GATEWAY_DASHBOARD)])
def test_rates_are_of_counters(expression: str) -> None:
    for call in nodes(parsed(expression)):
        if getattr(getattr(call, "func", None), "name", "") in ("rate", "increase"):
            (selector,) = [one for one in nodes(call) if hasattr(one, "matchers")]
            assert selector.name.endswith(("_total", "_bucket", "_sum", "_count")), selector.name


def test_a_wrong_expression_would_be_found(exported: dict[str, set[str]]) -> None:
    with pytest.raises(ValueError):
        parsed("sum by (le (rate(x[5m]))")
    with pytest.raises(ValueError):
        parsed("rat(x[5m])")
    (selector,) = selectors('rate(vllm:no_such_thing_total{a="b"}[5m])')
    assert selector.name not in exported


def test_alerts_are_whole() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names))
    for alert in alerts():
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert set(alert["annotations"]) == {"summary", "description"}
    for wanted in ("QueueBackup", "TimeToFirstToken", "InterTokenLatency", "KVPressure"):
        assert f"Headrace{wanted}" in names
    assert {"HeadraceEngineRestarts", "HeadraceEngineDown", "HeadraceRefusals"} <= set(names)


@pytest.mark.parametrize("path", [DASHBOARD, GATEWAY_DASHBOARD], ids=lambda one: one.stem)
def test_dashboard_panels(path: Path) -> None:
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or (panel["targets"] and panel["description"])


def test_prometheus_reads_the_rules() -> None:
    config = load(DEPLOY / "prometheus" / "prometheus.yml")
    assert config["rule_files"] == [RULES.name]
    (job,) = config["scrape_configs"]
    assert job["metrics_path"] in {path for _, path, _ in ROUTES}
    assert {f'job="{job["job_name"]}"'} >= set(
        re.findall(r'job="[^"]*"', RULES.read_text(encoding="utf-8"))
    )


def test_kubernetes() -> None:
    text = (DEPLOY / "kubernetes" / "headrace.yaml").read_text(encoding="utf-8")
    deployment, service = yaml.safe_load_all(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    paths = {path for _, path, _ in ROUTES}
    for probe, path in {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}.items():
        asked = container[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "http"}
        assert path in paths
    assert {"name": "http", "containerPort": 8000} in container["ports"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    check_command(container["command"] + container["args"])


def test_systemd_starts_what_there_is() -> None:
    path = DEPLOY / "systemd" / "headrace.service"
    (start,) = re.findall(r"^ExecStart=(.*)$", path.read_text(encoding="utf-8"), flags=re.M)
    check_command(start.split())
    if shutil.which("systemd-analyze") is None:
        return
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    complaints = [
        line
        for line in done.stderr.splitlines()
        if "headrace.service" in line and "not executable" not in line
    ]
    assert not complaints, done.stderr


def check_command(words: list[str]) -> None:
    """Every flag of a command line is one that `headrace serve` knows."""
    assert Path(words[0]).name == "headrace" and words[1] == "serve"
    known = CliRunner().invoke(cli, ["serve", "--help"]).output
    flags = [word for word in words if word.startswith("--")]
    assert flags
    for flag in flags:
        assert re.search(rf"{flag}\b", known), flag
