"""`headrace bench load`: what it prints and keeps, what it refuses, and its exit statuses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.report.files import read_run
from headrace.cli.bench.group import bench
from tests.bench.misbehaving import Request, always, misbehaving, whole

QUICK: dict[str, Any] = {"ttft_ms": 2, "tpot_ms": 1}
SHORT = ["--input-tokens", "8", "--output-tokens", "4", "--quiet"]


@contextmanager
def mock(**settings: Any) -> Iterator[MockEndpoint]:
    """A mock on a thread of its own, because the command runs its own event loop."""
    endpoint = MockEndpoint(MockSettings(**{**QUICK, **settings}), keep_requests=2000)
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with endpoint:
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        yield endpoint
    finally:
        done.set()
        thread.join(60)


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    keys = {"HEADRACE_BENCH_API_KEY": "", "OPENAI_API_KEY": "", **(env or {})}
    return CliRunner().invoke(bench, ["load", *arguments], env=keys)


def test_a_run_is_shown_saved_and_can_be_read_again(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            endpoint.url,
            "-c",
            "3",
            "-n",
            "12",
            "--warmup",
            "4",
            *SHORT,
            "--seed",
            "5",
            "--goodput",
            "ttft:60000",
            "--save",
            str(tmp_path / "out"),
            "--require-slo",
        )
    assert done.exit_code == 0, done.output
    assert "completed" in done.output
    assert "ttft" in done.output
    kept = read_run(tmp_path / "out")
    assert len(kept.requests) == 16
    assert sum(one.measured for one in kept.requests) == 12
    assert kept.about["model"] == "mock"
    assert kept.about["seed"] == 5
    assert kept.about["ending"] == "complete"
    assert kept.about["prompts_repeat"] is False
    assert len(kept.server_metrics) >= 2
    assert kept.server_metrics[0][0] <= 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Content-Security-Policy" in page


def test_json_and_the_names_of_other_tools() -> None:
    with mock() as endpoint:
        done = run(
            "--backend",
            "openai",
            "--base-url",
            endpoint.url,
            "--model",
            "m",
            "--dataset-name",
            "random",
            "--random-input-len",
            "9",
            "--random-output-len",
            "4",
            "--random-range-ratio",
            "0.5",
            "--num-prompts",
            "6",
            "--request-rate",
            "inf",
            "--max-concurrency",
            "2",
            "--seed",
            "1",
            "--quiet",
            "--json",
        )
        paths = {one.path for one in endpoint.received}
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["summary"]["requests"]["completed"] == 6
    assert told["about"]["load"] == "closed loop of 2, 6 requests"
    assert paths == {"/v1/completions"}


@pytest.mark.load
def test_equal_seeds_send_the_same() -> None:
    bodies = []
    for seed in ("1", "1", "2"):
        with mock() as endpoint:
            run(endpoint.url, "-n", "4", "-c", "1", *SHORT, "--seed", seed)
            bodies.append([one.body for one in endpoint.received])
    assert bodies[0] == bodies[1] != bodies[2]


def test_keys_come_from_the_environment_and_are_shown_nowhere(tmp_path: Path) -> None:
    key = "sk-hidden-0123456789"
    with mock(api_key=key) as endpoint:
        good = run(
            endpoint.url,
            "-n",
            "2",
            *SHORT,
            "--save",
            str(tmp_path / "a"),
            "-H",
            "x-secret-token: abcdefgh",
            "-Hx-pass:hunter22",
            env={"HEADRACE_BENCH_API_KEY": key},
        )
        bad = run(endpoint.url, "-n", "2", *SHORT, env={"OPENAI_API_KEY": "sk-other-9876543210"})
    assert good.exit_code == 0, good.output
    written = b"".join(file.read_bytes() for file in (tmp_path / "a").iterdir()).decode()
    assert key not in written + good.output
    assert "abcdefgh" not in written + good.output
    assert "hunter22" not in written + good.output
    assert bad.exit_code == 3
    assert "HTTP 401" in bad.output
    assert "HEADRACE_BENCH_API_KEY" in bad.output
    assert "sk-other" not in bad.output


def test_a_server_that_is_not_there() -> None:
    with mock() as endpoint:
        url = endpoint.url
    done = run(url, "-n", "2", *SHORT)
    assert done.exit_code == 3
    assert "refused the connection; is the server running" in done.output
    done = run("http://no-such-host.invalid", "-n", "2", *SHORT)
    assert done.exit_code == 3
    assert "no-such-host.invalid was not found" in done.output


def test_a_model_that_the_server_does_not_have_ends_the_command_after_one_request() -> None:
    posts: list[Request] = []

    async def absent(request: Request, writer: asyncio.StreamWriter) -> bool:
        posts.append(request)
        body = b'{"error":{"message":"The model `nope` does not exist."}}'
        return await always(whole(404, body))(request, writer)

    with misbehaving(absent) as url:
        done = run(url, "--model", "nope")
    assert done.exit_code == 3
    assert done.output == (
        "headrace: --model 'nope' cannot be measured: HTTP 404, there is no such path or no such "
        "model: The model `nope` does not exist.; the server lists m\n"
    )
    assert len(posts) == 1


def test_what_every_request_would_meet_ends_the_run_at_once() -> None:
    with mock(errors=(("404", 1.0),)) as endpoint:
        done = run(endpoint.url, "-n", "100", "-c", "2", *SHORT)
        assert len(endpoint.received) <= 6
    assert done.exit_code == 3
    assert "stopped: every request would be refused like the first ones" in done.output
    assert "nothing succeeded: HTTP 404" in done.output
    assert "Latency" not in done.output


@pytest.mark.parametrize(
    ("errors", "more", "status", "told"),
    [
        ((("html", 1.0),), (), 3, "nothing succeeded: HTML in place of a stream"),
        ((("429", 1.0),), (), 3, "nothing succeeded: HTTP 429"),
        ((("500", 0.5),), (), 1, "requests failed, more than --max-error-rate 0"),
        ((("500", 0.5),), ("--max-error-rate", "1"), 0, ""),
        ((("truncated", 0.5),), ("--max-errors", "3"), 1, "truncated"),
        ((), ("--goodput", "ttft:0.001", "--require-slo"), 4, "the SLO was missed: ttft:0.001"),
        ((), ("--goodput", "ttft:0.001"), 0, ""),
    ],
)
def test_exit_statuses(
    errors: tuple[tuple[str, float], ...], more: tuple[str, ...], status: int, told: str
) -> None:
    with mock(errors=errors, seed=1) as endpoint:  # of which the first two succeed at a half
        done = run(endpoint.url, "-n", "20", "-c", "2", *SHORT, *more)
    assert done.exit_code == status, done.output
    if told != "truncated":
        assert told in done.output
    else:
        assert "failed, more than --max-error-rate" in done.output


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--goodput", "speed:3"), "metric 'speed' is not known"),
        (("--search",), "--search needs an SLO"),
        (
            ("--search", "--goodput", "ttft:mean<5"),
            "a search needs a limit that a number of requests meets",
        ),
        (("--burstiness", "0.5"), "needs --rate and --arrivals gamma"),
        (("--rate", "5", "--ramp", "3"), "needs a closed loop; with --rate use --ramp-from"),
        (("--header", "nothing"), "is not NAME:VALUE"),
        (("--extra-body", "[1]"), "--extra-body '[1]'"),
        (("--speed", "3"), "needs a --trace; add one"),
        (("--input-tokens", "many"), "--input-tokens 'many'"),
        (("--percentiles", "x"), "--percentiles 'x'"),
        (("--unique-prompts", "--prefix-tokens", "9"), "give one of them"),
        (("--endpoint-type", "ollama", "--ignore-eos", "--model", "m"), "cannot be sent to ollama"),
        (("--processes", "4", "-c", "2"), "--processes 4: more than the 2 of --concurrency"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(given: tuple[str, ...], told: str) -> None:
    with mock() as endpoint:
        done = run(endpoint.url, "-n", "3", *given)
        assert not endpoint.received
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.output.split())


def test_a_trace_is_replayed_at_its_times(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": at, "input_length": 6, "output_length": 3, "hash_ids": [at // 100]}
        for at in (0, 200, 400)
    ]
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with mock() as endpoint:
        done = run(
            endpoint.url,
            "--trace",
            str(trace),
            "--speed",
            "4",
            "--warmup",
            "2",
            "--quiet",
            "--save",
            str(tmp_path / "out"),
        )
    assert done.exit_code == 0, done.output
    kept = read_run(tmp_path / "out")
    wanted = [one.intended_ns for one in kept.requests if one.measured]
    assert [at - wanted[0] for at in wanted] == [0, 50_000_000, 100_000_000]
    assert kept.about["load"] == "trace at 4 times its speed, 2 to warm up"
    assert str(tmp_path) not in str(kept.about["command"])


def test_conversations_hold_the_answers() -> None:
    with mock() as endpoint:
        done = run(endpoint.url, "--turns", "2", "--think", "1ms", "-c", "1", "-n", "4", *SHORT)
        sent = [json.loads(one.body)["messages"] for one in endpoint.received]
    assert done.exit_code == 0, done.output
    assert [len(one) for one in sent] == [1, 3, 1, 3]
    assert "\0" not in json.dumps(sent)


@pytest.mark.load
def test_a_sweep_goes_from_one_user_to_many(tmp_path: Path) -> None:
    with mock(capacity=4, ttft_ms=20) as endpoint:
        done = run(
            endpoint.url,
            "--sweep",
            "3",
            "-c",
            "8",
            "-n",
            "16",
            *SHORT,
            "--save",
            str(tmp_path / "out"),
            "--json",
        )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["sweep"]
    assert told[0]["name"] == "synchronous"
    assert told[-1]["name"] == "throughput"
    assert all(one["summary"]["requests"]["completed"] == 16 for one in told)
    fingerprints = {one["about"]["prompts_fingerprint"] for one in told}
    assert len(fingerprints) == len(told)  # prompts of its own for each
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.load
def test_a_search_tells_what_it_found() -> None:
    with mock() as endpoint:
        done = run(
            endpoint.url,
            "--search",
            "--rate",
            "60",
            "--highest-rate",
            "60",
            "-n",
            "60",
            "--goodput",
            "ttft:60000",
            *SHORT,
            "--json",
        )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["search"]
    assert found["highest_met"] == 60
    assert found["decided"] is True
    assert "the highest rate allowed" in found["told"]
    with mock() as endpoint:
        done = run(
            endpoint.url,
            "--search",
            "--rate",
            "300",
            "-n",
            "60",
            "--budget",
            "0.5",
            "--goodput",
            "ttft:0.001",
            "--require-slo",
            *SHORT,
        )
    assert done.exit_code == 4
    assert "no rate that was tried met the SLO" in done.output


@pytest.mark.process
def test_several_processes_do_one_run_together(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            endpoint.url,
            "--processes",
            "2",
            "-c",
            "4",
            "-n",
            "21",
            "--warmup",
            "3",
            *SHORT,
            "--save",
            str(tmp_path / "out"),
        )
        sent = [one.body for one in endpoint.received]
    assert done.exit_code == 0, done.output
    assert len(sent) == len(set(sent)) == 24
    kept = read_run(tmp_path / "out")
    assert [one.index for one in kept.requests] == list(range(24))
    assert sum(one.measured for one in kept.requests) == 21
    assert len(kept.health.cpu_share) == 2


def test_the_help_has_headings_and_every_alias() -> None:
    told = run("--help").output
    for text in ("Where requests go:", "When it is sent:", "--num-prompts", "--isl", "Exit status"):
        assert text in told
