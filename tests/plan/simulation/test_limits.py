"""What would make a simulation endless, or larger than the machine, is refused before it begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.plan.simulation.engine_of import latency_of_parts, read_latency
from headrace.plan.simulation.settings import (
    AutoscaleSettings,
    Disaggregation,
    FailureSettings,
)
from tests.plan.simulation.services import service


def scaled(**changed: float) -> AutoscaleSettings:
    settings = {"target": 2, "least": 1, "most": 4, "cold_start_s": (1.0, 2.0), **changed}
    return AutoscaleSettings(by="queue", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: service(replicas=10**9), "replicas is 1000000000; it must be at most 10,000"),
        (lambda: scaled(most=10**6), "max_replicas is 1000000; it must be at most 10,000"),
        (lambda: scaled(interval_s=1e-9), "scale_interval is 1e-09; it must be at least 0.1"),
        (lambda: FailureSettings(mtbf_s=1e-9), "mtbf is 1e-09; it must be at least 0.1"),
        (
            lambda: Disaggregation(
                prefill_replicas=1, decode_replicas=10**8, kv_bytes_per_token=1, link_bytes_per_s=1
            ),
            "decode_replicas is 100000000; it must be at most 10,000",
        ),
        (lambda: latency_of_parts({"step_s": 1e308}), "latency step_s is 1e.308; it must be from"),
        (lambda: latency_of_parts({"step_s": float("nan")}), "from 0 to 3600 seconds"),
    ],
)
def test_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


@pytest.mark.parametrize("value", ["1e308", "-1", "NaN", "1" + "0" * 400, '"\\ud800"'])
def test_a_file_with_steps_that_cannot_be(value: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    parts = ("prefill_token_s", "prefill_pair_s", "decode_request_s", "decode_context_token_s")
    rest = json.dumps(dict.fromkeys(parts, 0))[1:]
    path.write_text(f'{{"step_s": {value}, {rest}')
    with pytest.raises(ConfigError, match=r"steps.json: "):
        read_latency(path)
    path.write_bytes(b'{"step_s": "\xff"}')
    with pytest.raises(ConfigError, match="is not JSON"):
        read_latency(path)
