"""What /metrics says, as samples."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headrace.config.yaml_file import Document
from headrace.gateway.building.gateway import Gateway, gateway_of
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.telemetry.telemetry import Telemetry
from tests.gateway.harness import CATALOG, ask

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
PRICE = {"input": 1.0, "output": 2.0}


def settings(*origins: Any, **more: Any) -> dict[str, Any]:
    """A model of two names whose targets are at `origins`, tried in that order."""
    names = "abcd"
    return {
        "providers": {
            names[at]: {"base_url": f"{one}/v1", "dialect": "openai-chat"}
            for at, one in enumerate(origins)
        },
        "models": {
            "chat": {
                "strategy": "ordered",
                "targets": [
                    {"model": f"{names[at]}/m{at}", "price": PRICE} for at in range(len(origins))
                ],
            }
        },
        "aliases": {"gpt": "chat"},
        "retries": {"backoff_s": 0.01, "backoff_max_s": 0.02},
        **more,
    }


def told_by(telemetry: Telemetry, config: dict[str, Any]) -> Gateway:
    """A gateway that goes on with a telemetry of before, in force."""
    config = {"access": {"require_key": False}, **config}
    built = gateway_of(
        parse_settings(Document(config, {}), "gateway.yaml"),
        CATALOG,
        Sources({}, Path()),
        accounts=None,
        on_entry=lambda _: None,
        clock_ns=time.monotonic_ns,
        wall_s=lambda: 1_790_000_000.0,
        source=random.Random(1),
        new_id=lambda: "req",
        telemetry=telemetry,
    )
    built.take_over()
    return built


async def samples(built: Gateway) -> dict[str, float]:
    """`name{label="value",...}` with the labels sorted; those that are empty left out."""
    told = await ask(built.app, b"", path="/metrics", method="GET")
    assert told.status == 200 and told.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(told.body.decode()):
        for one in family.samples:
            labels = ",".join(f'{k}="{v}"' for k, v in sorted(one.labels.items()) if v)
            found[one.name + (f"{{{labels}}}" if labels else "")] = one.value
    return found
