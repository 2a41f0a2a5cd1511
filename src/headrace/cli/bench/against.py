"""`headrace bench against`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from headrace.bench.against.cases import AgainstCase
    from headrace.bench.against.peer import ServerFacts
    from headrace.bench.against.turns import CaseResult, Comparison, Run
    from headrace.bench.client.endpoints import Endpoint
    from headrace.bench.load.experiment import Experiment
    from headrace.telemetry.machine import Limits

_PORT = "{port}"


@click.command(short_help="Measure headrace and another server on this machine, in turns.")
@click.argument("peer", metavar="URL|COMMAND")
@click.argument("model", metavar="MODEL")
@click.argument("serve_arguments", metavar="[-- SERVE_OPTIONS]", nargs=-1)
@click.option(
    "--minutes",
    type=click.FloatRange(0, 24 * 60, min_open=True),
    default=5.0,
    show_default=True,
    help="Time for all pairs; each case is measured at least once while it lasts.",
)
@click.option(
    "--cases",
    default=None,
    help="Cases, such as decode,streams-8: prefill-512, -4096 or -8192; decode, decode-at-4096 or "
    "-16384; streams-2, -4, -8, -16, -32 or -64; sampled-32; shared-512 or -4096. [default: "
    "prefill-512, decode, streams-8, prefill-4096, streams-32, shared-512]",
)
@click.option("--peer-model", help="Name of the peer's model. [default: the one that is served]")
@click.option(
    "--start-timeout",
    "start_timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds that each server may take until it answers.",
)
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def against(
    peer: str,
    model: str,
    serve_arguments: tuple[str, ...],
    minutes: float,
    cases: str | None,
    peer_model: str | None,
    start_timeout_s: float,
    markdown: bool,
    as_json: bool,
) -> None:
    """Measure headrace with MODEL and another server on this machine, in turns: A B A B.

    The peer is the URL of a server with OpenAI's completions API that runs already (llama-server,
    vLLM, Ollama ...), or a command that starts one, in quotes, in which {port} is replaced by a
    free port; it should serve the same model, in the same precision. headrace is started with MODEL
    and what follows `--`, and ended again. Both answer the same loads over HTTP; the ratio is that
    of each pair. Beside it stand the machine's limits, read before, between and after, and the
    largest ratio that they allow.

    Keep the machine otherwise idle. The key for the peer is read from HEADRACE_BENCH_API_KEY or
    OPENAI_API_KEY.

    \b
    headrace bench against http://127.0.0.1:8080 ./model.gguf
    headrace bench against 'llama-server -m m.gguf -c 16384 -np 32 --port {port}' ./m.gguf
    headrace bench against http://127.0.0.1:8000 ./Qwen3-0.6B --cases decode -- --threads 4
    """  # fmt: skip
    from headrace.bench.load.probe import UnreachableError
    from headrace.errors import ConfigError

    try:
        chosen = _chosen(cases)
        facts, comparison = _measure(
            _Asked(peer, model, serve_arguments, minutes * 60, peer_model, start_timeout_s),
            chosen,
            lambda text: click.echo(text, err=True),
        )
    except (ConfigError, UnreachableError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        _print_json(facts, comparison)
    else:
        _print(facts, comparison, markdown)
    if not any(result.ours for result in comparison.results):
        click.get_current_context().exit(1)


class _Asked(NamedTuple):
    peer: str
    model: str
    serve_arguments: Sequence[str]
    budget_s: float
    peer_model: str | None
    start_timeout_s: float


class _Facts(NamedTuple):
    """Facts of both servers, with the seconds that those started here took until they answered."""

    ours: ServerFacts
    peer: ServerFacts
    ready_s: dict[str, float]


def _chosen(names: str | None) -> list[AgainstCase]:
    from headrace.bench.against.cases import CASES, DEFAULT_CASES
    from headrace.errors import ConfigError, shown

    if names is None:
        return [CASES[name] for name in DEFAULT_CASES]
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in CASES]
    if unknown or not asked:
        raise ConfigError(
            f"--cases {shown(names)}: not a list of some of {', '.join(CASES)}; name those"
        )
    return [CASES[name] for name in dict.fromkeys(asked)]


def _measure(
    asked: _Asked, cases: list[AgainstCase], progress: Callable[[str], None]
) -> tuple[_Facts, Comparison]:
    import asyncio
    import os
    import sys
    import time
    from contextlib import ExitStack

    from headrace.bench.against.peer import is_here, is_ready, server_facts
    from headrace.bench.against.process import free_port, started
    from headrace.bench.against.turns import in_turns
    from headrace.bench.client.endpoints import split_url
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig, build
    from headrace.errors import ConfigError

    peer_command = _peer_command(asked.peer)
    if peer_command is None:
        split_url(asked.peer)
    obtained, _ = obtain(build(EngineConfig, {"model": asked.model}, source="flags"))
    ready_s: dict[str, float] = {}
    with ExitStack() as running:

        def start(name: str, command: list[str], url: str) -> None:
            progress(f"starting {name}")
            endpoint = _endpoint(url)
            ready_s[name] = running.enter_context(
                started(
                    command,
                    is_ready=lambda: asyncio.run(is_ready(endpoint)),
                    timeout_s=asked.start_timeout_s,
                    # A key in the environment is one that is sent, not one to ask for.
                    environ={k: v for k, v in os.environ.items() if k != "HEADRACE_API_KEY"},
                )
            )

        peer_url = asked.peer.rstrip("/")
        if peer_command is not None:
            port = free_port()
            peer_url = f"http://127.0.0.1:{port}"
            start("peer", [part.replace(_PORT, str(port)) for part in peer_command], peer_url)
        port = free_port()
        own_url = f"http://127.0.0.1:{port}"
        serve = [sys.executable, "-m", "headrace", "serve", obtained.model]
        serve += ["--host", "127.0.0.1", "--port", str(port), *asked.serve_arguments]
        start("headrace", serve, own_url)
        peer_run = _runs(peer_url, obtained.model, asked.peer_model)
        own_run = _runs(own_url, obtained.model, None)
        for name, run in (("peer", peer_run), ("headrace", own_run)):
            progress(f"warming up: {name}")
            done = run(min(cases, key=lambda case: case.users * case.positions))
            if not done.summary.requests.completed:
                from headrace.bench.load.failures import failure_report

                raise ConfigError(
                    f"{name}: no request succeeded: {failure_report(done.run.requests)}"
                )
        facts = _Facts(
            asyncio.run(server_facts(_endpoint(own_url))),
            asyncio.run(server_facts(_endpoint(peer_url))),
            ready_s,
        )
        comparison = in_turns(
            cases,
            own_run,
            peer_run,
            read_limits=_limits_reader(_endpoint(own_url)) if is_here(peer_url) else lambda: None,
            budget_s=asked.budget_s,
            clock=time.monotonic,
            progress=progress,
        )
    return facts, comparison


def _peer_command(peer: str) -> list[str] | None:
    """The words of a command; None of a URL. Raises ConfigError."""
    from headrace.errors import ConfigError, shown

    if "://" in peer.partition(" ")[0]:
        return None
    try:
        words = shlex.split(peer)
    except ValueError as error:
        raise ConfigError(f"COMMAND {shown(peer)}: {error}; close its quotes") from error
    if not any(_PORT in word for word in words):
        raise ConfigError(
            f"{shown(peer)} is not a URL (http://HOST:PORT), and as a command it has no {_PORT}: "
            "write it where the server's port belongs, such as --port {port}"
        )
    return words


def _endpoint(url: str) -> Endpoint:
    import os

    from headrace.bench.client.endpoints import Endpoint
    from headrace.bench.load.failures import KEY_VARIABLES

    key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    return Endpoint(kind="openai-completions", base_url=url, model="", api_key=key)


def _runs(url: str, tokenizer: str, model: str | None) -> Run:
    """Loads of one server; each case is one experiment, whose runs have prompts of their own."""
    import secrets

    from headrace.bench.load.experiment import RunResult
    from headrace.cli.bench.load.command import experiment_of

    experiments: dict[str, Experiment] = {}

    def run(case: AgainstCase) -> RunResult:
        if case.name not in experiments:
            arguments = [url, "--endpoint-type", "completions", "--tokenizer", tokenizer]
            arguments += ["--quiet", "--seed", str(secrets.randbits(31)), *case.arguments()]
            if model is not None:
                arguments += ["--model", model]
            experiments[case.name] = experiment_of(arguments)[0]
        return experiments[case.name].run()

    return run


def _limits_reader(endpoint: Endpoint) -> Callable[[], Limits | None]:
    """Reads the machine's limits at the level, and with the threads, that our server has; None of
    a server that other kernels compute for."""
    import asyncio
    from datetime import UTC, datetime

    from headrace.bench.against.peer import engine_labels
    from headrace.bench.machine import measure_machine
    from headrace.ops.cpu import CpuOps
    from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES

    labels = asyncio.run(engine_labels(endpoint))
    if labels["backend"] != "cpu":
        return lambda: None

    def read() -> Limits | None:
        level, threads = labels["cpu_level"], int(labels["threads"])
        measured = measure_machine(
            CpuOps,
            levels=[level],
            threads=[threads],
            footprints_bytes=[DRAM_FOOTPRINT_BYTES],
            repeats=1,
            now=datetime.now(UTC),
        )
        return measured.machine.limits(level, threads, labels["weight_codec"])

    return read


def _print_json(facts: _Facts, comparison: Comparison) -> None:
    import msgspec

    results = [
        {
            **msgspec.to_builtins(result),
            "ratios": result.ratios,
            "largest_possible_ratio": result.most_ratio,
            "share_of_limit": result.share,
        }
        for result in comparison.results
    ]
    limits = [limit._asdict() for limit in comparison.limits]
    printed = {
        "headrace": facts.ours, "peer": facts.peer, "ready_s": facts.ready_s, "limits": limits,
        "results": results,
    }  # fmt: skip
    click.echo(msgspec.json.encode(printed))


_HEADER = ("tokens/s", "headrace", "peer", "ratio", "largest possible", "of the limit")


def _print(facts: _Facts, comparison: Comparison, markdown: bool) -> None:
    for name, server in (("headrace", facts.ours), ("peer", facts.peer)):
        click.echo("\n".join(_server_lines(name, server, facts.ready_s.get(name))))
    click.echo(_limits_line(comparison.limits) + "\n")
    rows = [_cells(result) for result in comparison.results if result.ours]
    if markdown:
        click.echo("| " + " | ".join(_HEADER) + " |\n|---|" + "---:|" * (len(_HEADER) - 1))
        for cells in rows:
            click.echo("| " + " | ".join(cells) + " |")
    else:
        from rich.table import Table

        from headrace.cli.bench.console import wide_console

        table = Table(box=None)
        for index, name in enumerate(_HEADER):
            table.add_column(name, justify="right" if index else "left")
        for cells in rows:
            table.add_row(*cells)
        wide_console().print(table)
    for result in comparison.results:
        if not result.ours:
            click.echo(f"{result.case}: not measured: {result.why_missing}", err=True)


def _server_lines(name: str, server: ServerFacts, ready_s: float | None) -> list[str]:
    parts = [server.build or "", server.model or ""]
    parts += [f"{server.slots} slots"] if server.slots is not None else []
    parts += [f"context {server.context:,}"] if server.context is not None else []
    parts += [f"ready after {ready_s:.2f} s"] if ready_s is not None else []
    lines = [f"{name}: {', '.join(part for part in parts if part) or server.url}"]
    return lines + ([f"  {server.command}"] if server.command else [])


def _limits_line(limits: Sequence[Limits]) -> str:
    if not limits:
        return "the peer is on another machine: no limits, and no fair ratio"
    reads = [limit.bytes_per_s / 1e9 for limit in limits]
    rates = [limit.ops_per_s / 1e9 for limit in limits]
    return (
        f"this machine, read {len(limits)} times: {_spread(reads)} GB/s, "
        f"{_spread(rates, 0)} GOPS ({limits[0].kind})"
    )


def _cells(result: CaseResult) -> list[str]:
    most, share = result.most_ratio, result.share
    return [
        result.case,
        _spread(result.ours),
        _spread(result.peer),
        _spread(result.ratios, 2),
        "" if most is None else f"{most:.2f}",
        "" if share is None else f"{share:.0%}",
    ]


def _spread(values: Sequence[float], places: int = 1) -> str:
    """The median, and the range where there are several."""
    from statistics import median

    middle: Any = f"{median(values):,.{places}f}"
    if len(values) == 1:
        return str(middle)
    return f"{middle} [{min(values):,.{places}f}..{max(values):,.{places}f}]"
