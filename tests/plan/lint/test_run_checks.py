"""Checks of runs: what they show of the service, and whether they show anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.run_file import Client, percentile, read_run
from headrace.telemetry.readings import growth, read_texts
from tests.plan.lint.subjects import (
    found,
    lacks,
    outcome,
    prompts,
    readings,
    request,
    run,
    subject,
    values,
)


def test_cold_starts_at_the_start_and_after_a_pause() -> None:
    warm = [request(n, float(n)) for n in range(30)]
    cold = [request(100, -2.0, ttft_s=40.0), *warm]
    one = found("L-cold", subject(run=run(cold)))
    assert values(one)["slowest, request 100"] == 40.0 and "at the start" in one.says
    rested = [*warm, request(31, 200.0, ttft_s=30.0)]
    assert "after 170 s" in found("L-cold", subject(run=run(rested))).says
    # One late answer among others is no start.
    lone = [*warm[:15], request(50, 14.5, ttft_s=30.0), *warm[15:]]
    assert outcome("L-cold", subject(run=run(lone))) == ()
    assert outcome("L-cold", subject(run=run(warm))) == ()
    assert "20 requests" in lacks("L-cold", subject(run=run(warm[:3])))


def test_an_engine_that_is_added() -> None:
    told = [request(n, float(n), ttft_s=20.0 if 15 <= n < 18 else 0.1) for n in range(30)]
    added, _ = read_texts(
        [(at * 10**9, 'vllm:num_requests_running{e="0"} 1\n'
          + ('vllm:num_requests_running{e="1"} 1\n' if at >= 14 else "")) for at in range(30)]
    )  # fmt: skip
    assert "added" in found("L-cold", subject(run=run(told, added))).says
    assert outcome("L-cold", subject(run=run(told))) == ()


def test_capacity_for_the_peak(tmp_path: Path) -> None:
    bursts = [{"prompt": "x", "timestamp": 60_000 * n} for n in range(20)]
    bursts += [{"prompt": "x", "timestamp": 60_000 * 5 + n} for n in range(100)]
    bursts.append({"prompt": "x", "timestamp": 60_000 * 20})
    told = values(found("L-overprovision", subject(prompts=prompts(tmp_path, bursts))))
    assert told["requests in the busiest minute"] == 101 and told["mean of a minute"] == 6.0
    even = [{"prompt": "x", "timestamp": 30_000 * n} for n in range(60)]
    assert outcome("L-overprovision", subject(prompts=prompts(tmp_path, even))) == ()
    assert "ten minutes" in lacks("L-overprovision", subject())
    idle = readings(*({"running": 40.0 if n == 3 else 1.0} for n in range(30)), every_s=30.0)
    one = found("L-overprovision", subject(run=run([request(0)], idle), hardware="h100-sxm"))
    assert "rent of idle capacity" in values(one)


def test_calls_one_after_another() -> None:
    closed = {"open_loop": False}
    apart = [request(n, 2.0 * n) for n in range(12)]
    one = found("L-sequential", subject(run=run(apart, about=closed)))
    assert values(one)["waited for answers"] == 12.0
    beside = [request(n, 0.5 * n) for n in range(12)]
    assert outcome("L-sequential", subject(run=run(beside, about=closed))) == ()
    talk = [request(n, 2.0 * n, session=1) for n in range(12)]
    assert outcome("L-sequential", subject(run=run(talk, about=closed))) == ()
    assert "10 completed" in lacks("L-sequential", subject(run=run(apart[:3])))


MANY = tuple(request(n, float(n)) for n in range(1000))


@pytest.mark.parametrize(
    ("id", "bad", "good"),
    [
        ("L-bench-short", run(MANY, duration_s=8.0), run(MANY)),
        ("L-bench-lengths", run([request(n, prompt_tokens=9) for n in range(5)]), run(MANY)),
        ("L-bench-client", run(MANY, client=Client(True, ("late",))), run(MANY)),
        ("L-bench-samples", run(MANY[:50]), run(MANY)),
        ("L-bench-cache",
         run([request(n, cached_tokens=90) for n in range(5)], about={"prompts_repeat": True}),
         run([request(n, cached_tokens=0) for n in range(5)], about={"prompts_repeat": True})),
        ("L-bench-failures", run([*MANY[:9], request(9, failure="http", end_s=None)]), run(MANY)),
        ("L-bench-closed-loop", run(MANY, about={"open_loop": False}), run(MANY)),
    ],
)  # fmt: skip
def test_benchmarks_that_say_little(id: str, bad: object, good: object) -> None:
    assert found(id, subject(run=bad)).remedy
    assert outcome(id, subject(run=good)) == ()
    assert "run" in lacks(id, subject())


def test_two_definitions() -> None:
    two = (run(MANY[:2]), run(MANY[:2], definition="vllm", where="other"))
    assert len(found("L-definitions", subject(run=two[0], runs=two)).evidence) == 2
    assert outcome("L-definitions", subject(run=two[0], runs=two[:1] * 2)) == ()
    assert "two" in lacks("L-definitions", subject(run=two[0], runs=two[:1]))


def test_a_saved_run_is_read(tmp_path: Path) -> None:
    client = {"client_bound": False, "sentences": ["ok"]}
    summary = {"definition": "headrace", "duration_s": 9.5, "client": client}
    about = {"open_loop": True}
    result = {"headrace": {"format": 1, "about": about, "requests": 1, "summary": summary}}
    (tmp_path / "result.json").write_bytes(msgspec.json.encode(result))
    line = {"index": 0, "measured": True, "intended_ns": 0, "sent_ns": 10**9, "end_ns": 3 * 10**9,
            "chunks": [[11 * 10**8, "role", ""], [15 * 10**8, "text", "hi", None, None]],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2}}  # fmt: skip
    (tmp_path / "requests.jsonl").write_bytes(msgspec.json.encode(line) + b"\n{half")
    (tmp_path / "metrics.jsonl").write_bytes(
        msgspec.json.encode([5 * 10**8, 'vllm:num_requests_running{m="x"} 3\n']) + b"\n"
    )
    read = read_run(tmp_path)
    assert len(read.requests) == 1 and read.duration_s == 9.5
    one = read.requests[0]
    assert (one.ttft_s, one.e2e_s, one.prompt_tokens, one.output_tokens) == (0.5, 2.0, 7, 2)
    assert read.readings[0].values == {"running": 3.0}
    (tmp_path / "result.json").write_bytes(b'{"headrace": {"format": 9}}')
    with pytest.raises(ConfigError, match="format 9"):
        read_run(tmp_path)
    (tmp_path / "result.json").write_bytes(b"{}")
    with pytest.raises(ConfigError, match="not a result of headrace"):
        read_run(tmp_path)


def test_counters_that_begin_anew() -> None:
    texts = [(n, f"vllm:num_preemptions_total {value}\n") for n, value in enumerate((5, 8, 2))]
    assert growth(read_texts(texts)[0], "preemptions") == 5
    assert growth(read_texts(texts[:1])[0], "preemptions") is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_a_threshold_is_the_catalog_s_and_can_be_one_s_own(tmp_path: Path) -> None:
    of = subject(run=run(MANY, duration_s=90.0))
    assert outcome("L-bench-short", of) == ()
    (tmp_path / "constant").mkdir()
    (tmp_path / "constant" / "mine.toml").write_text(
        '[[constant]]\nid = "lint-short-run"\nname = "Mine"\ntopic = "practice"\n'
        'source = "planner-choices"\nas_of = 2026-11-22\nconfidence = "low"\n'
        'figure = { value = 120, unit = "s" }\n',
        encoding="utf-8",
    )
    stricter = replace(of, catalog=Catalog.load([tmp_path]))
    one = found("L-bench-short", stricter)
    assert values(one)["enough"] == 120
    assert any(item.where == "catalog: lint-short-run" for item in one.evidence)
