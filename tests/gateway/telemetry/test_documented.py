"""docs/gateway-metrics.md and /metrics say the same."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import get_args

from prometheus_client.parser import text_string_to_metric_families

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.serving.entry import Outcome
from headrace.gateway.telemetry.request_series import LINES
from headrace.protocol.neutral.failure import FailureKind
from tests.gateway.harness import ask, gateway
from tests.gateway.request_log.parts import log_of
from tests.gateway.telemetry.scraped import settings

PAGE = Path(__file__).parents[3] / "docs" / "gateway-metrics.md"


def documented() -> dict[str, tuple[str, str]]:
    """Name → (kind, meaning) of the rows of the page's tables."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            name, kind, meaning = [cell.strip() for cell in line.strip("|").split("|")][:3]
            rows[name.strip("`")] = (kind, meaning)
    return rows


async def test_every_metric_is_documented_and_every_documented_one_exists(tmp_path: Path) -> None:
    accounts = Accounts(MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom)
    config = settings("http://127.0.0.1:9", access={"master_key": "env:KEY"})
    log = log_of(folder=tmp_path)
    built = gateway(config, [], accounts=accounts, environ={"KEY": "k"}, request_log=log)
    told = await ask(
        built.app, b"", path="/metrics", method="GET", headers={"authorization": "Bearer k"}
    )
    served = {
        one.name + ("_total" if one.type == "counter" else ""): one.type
        for one in text_string_to_metric_families(told.body.decode())
    }
    log.close()
    rows = documented()
    assert set(rows) == set(served)
    assert {name: kind for name, (kind, _) in rows.items()} == served


def test_the_values_of_labels_are_documented() -> None:
    rows = documented()
    for name, values in (
        ("headrace:gateway_tokens_total", LINES),
        ("headrace:gateway_attempt_failures_total", get_args(FailureKind)),
        ("headrace:gateway_requests_total", get_args(Outcome)),
    ):
        assert set(values) <= set(re.findall(r"`([a-z_0-9]+)`", rows[name][1])), name


def test_expressions_name_metrics_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("```promql")[2]
    found = set(re.findall(r"\b(?:headrace:|gen_ai_)[a-z_]+", text))
    assert found and {one.removesuffix("_bucket") for one in found} <= set(documented())
