"""`headrace bench against`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.numbers import NumberRange

if TYPE_CHECKING:
    from headrace.bench.against.peer import ServerFacts
    from headrace.bench.against.session import Facts
    from headrace.bench.against.turns import CaseResult, Comparison
    from headrace.telemetry.machine import Limits

_LARGEST_SEED = 2**31 - 1


@click.command(short_help="Measure headrace and another server on this machine, in turns.")
@click.argument("peer", metavar="URL|COMMAND")
@click.argument("model", metavar="MODEL")
@click.argument("serve_arguments", metavar="[-- SERVE_OPTIONS]", nargs=-1)
@click.option(
    "--minutes",
    type=NumberRange(0, 24 * 60, min_open=True),
    default=5.0,
    show_default=True,
    help="Time for pairs; starting, warming up and reading the machine come on top, about a "
    "minute. The first case is always measured, others while time is left.",
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
    "--seed",
    type=click.IntRange(0, _LARGEST_SEED),
    default=None,
    help="Seed of the prompts, the same for both; a server that answered them before may have them "
    "in its cache. [default: drawn, and printed]",
)
@click.option(
    "--start-timeout",
    "start_timeout_s",
    type=NumberRange(0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds that each server may take until it answers.",
)
@click.option(
    "--timeout",
    "--request-timeout-seconds",
    "request_timeout_s",
    type=NumberRange(0.001, 86_400),
    default=600.0,
    show_default=True,
    help="Seconds that an answer may take, of either server. Raise it for long prompts of many "
    "requests at once.",
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
    seed: int | None,
    start_timeout_s: float,
    request_timeout_s: float,
    markdown: bool,
    as_json: bool,
) -> None:
    """Measure headrace with MODEL and another server on this machine, in turns.

    The peer is the URL of a server with OpenAI's completions API that runs already (llama-server,
    vLLM, Ollama ...), or a command that starts one, in quotes, in which {port} is replaced by a
    free port; it should serve the same model, in the same precision. headrace is started with MODEL
    and what follows `--`, and ended again. Both answer the same loads over HTTP. The ratio is that
    of a pair of runs with the same prompts; which of the two servers comes first changes from pair
    to pair. Beside it stand the machine's limits, read before, between and after, and the largest
    ratio that they allow: products and attention each have the rate at which they are multiplied.

    Keep the machine otherwise idle. The key for the peer is read from HEADRACE_BENCH_API_KEY or
    OPENAI_API_KEY.

    \b
    headrace bench against http://127.0.0.1:8080 ./model.gguf
    headrace bench against 'llama-server -m m.gguf -c 24576 -np 32 -kvu --port {port}' ./m.gguf
    headrace bench against http://127.0.0.1:8000 ./Qwen3-0.6B --cases decode -- --threads 4
    """  # fmt: skip
    import os
    import secrets
    import sys
    import time
    from datetime import UTC, datetime

    from headrace.bench.against.cases import cases_of
    from headrace.bench.against.session import (
        PORT,
        ComparisonOptions,
        Environment,
        check_own_options,
        compared,
        peer_of,
    )
    from headrace.bench.load.failures import KEY_VARIABLES
    from headrace.bench.load.probe import UnreachableError
    from headrace.bench.signals import ended_by_signals
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig, build
    from headrace.errors import ConfigError
    from headrace.ops.cpu import CpuOps

    if markdown and as_json:
        raise click.UsageError("--json and --markdown are two forms of one table; give one of them")
    if seed is None:
        seed = secrets.randbelow(_LARGEST_SEED + 1)
    try:
        chosen = cases_of(cases)
        check_own_options(serve_arguments)
        server = peer_of(peer)
        checkpoint = obtain(build(EngineConfig, {"model": model}, source="flags")).config.model
        serve = [sys.executable, "-m", "headrace", "serve", *([checkpoint] if checkpoint else [])]
        serve += ["--host", "127.0.0.1", "--port", PORT, *serve_arguments]
        options = ComparisonOptions(
            peer=server,
            own=serve,
            tokenizer=checkpoint or None,
            peer_model=peer_model,
            seed=seed,
            budget_s=minutes * 60,
            start_timeout_s=start_timeout_s,
            request_timeout_s=request_timeout_s,
            api_key=next((os.environ[key] for key in KEY_VARIABLES if os.environ.get(key)), None),
        )
        environment = Environment(
            # A key in the environment is one that is sent, not one to ask for.
            environ={k: v for k, v in os.environ.items() if k != "HEADRACE_API_KEY"},
            make_probe=CpuOps,
            clock=time.monotonic,
            now=lambda: datetime.now(UTC),
            progress=lambda text: click.echo(text, err=True),
        )
        with ended_by_signals():
            facts, comparison = compared(options, chosen, environment)
    except (ConfigError, UnreachableError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        _print_json(facts, comparison, seed)
    else:
        _print(facts, comparison, seed, markdown)
    if not any(result.ours for result in comparison.results):
        click.get_current_context().exit(1)


def _print_json(facts: Facts, comparison: Comparison, seed: int) -> None:
    import msgspec

    from headrace.bench.against.differences import differences
    from headrace.bench.against.doubts import doubts_of_machine, doubts_of_row

    results = [
        {
            **msgspec.to_builtins(result),
            "pairs": len(result.ours),
            "ratios": result.ratios,
            "largest_possible_ratio": result.most_ratio,
            "share_of_limit": result.share,
            "doubts": doubts_of_row(result),
        }
        for result in comparison.results
    ]
    limits = [limit._asdict() for limit in comparison.limits]
    printed = {
        "headrace": facts.ours, "peer": facts.peer, "ready_s": facts.ready_s, "seed": seed,
        "models_differ_in": differences(facts.ours, facts.peer),
        "limits": limits, "doubts": doubts_of_machine(comparison.limits), "results": results,
    }  # fmt: skip
    click.echo(msgspec.json.encode(printed))


_HEADER = ("tokens/s", "pairs", "headrace", "peer", "ratio", "largest possible", "of the limit")


def _print(facts: Facts, comparison: Comparison, seed: int, markdown: bool) -> None:
    for name, server in (("headrace", facts.ours), ("peer", facts.peer)):
        click.echo("\n".join(_server_lines(name, server, facts.ready_s.get(name))))
    click.echo(f"{_limits_line(comparison.limits)}; prompts of seed {seed}")
    click.echo(_warning(facts))
    rows = [_cells(result) for result in comparison.results if result.ours]
    if rows:
        _print_table(rows, markdown)
    notes = [note for result in comparison.results for note in _notes(result)]
    notes += _note_of_machine(comparison.limits) if rows else []
    if markdown and rows and notes:
        click.echo()
    for note in notes:
        click.echo(f"- {note}" if markdown else note)


def _print_table(rows: Sequence[Sequence[str]], markdown: bool) -> None:
    if markdown:
        click.echo("| " + " | ".join(_HEADER) + " |\n|---|" + "---:|" * (len(_HEADER) - 1))
        for cells in rows:
            click.echo("| " + " | ".join(cells) + " |")
        return
    from rich.table import Table

    from headrace.cli.bench.console import print_table

    table = Table(box=None)
    for index, name in enumerate(_HEADER):
        table.add_column(name, justify="right" if index else "left")
    for cells in rows:
        table.add_row(*cells)
    print_table(table)


def _warning(facts: Facts) -> str:
    """A line above the table where the models differ; empty where that is not to be seen."""
    from headrace.bench.against.differences import differences

    differ = differences(facts.ours, facts.peer)
    if not differ:
        return ""
    listed = " and ".join(part for part in (", ".join(differ[:-1]), differ[-1]) if part)
    ours, peer = (_model(server) for server in (facts.ours, facts.peer))
    return (
        f"warning: not the same model, it seems: {listed} differ (headrace: {ours}; peer: {peer}); "
        "the ratio compares models then, too\n"
    )


def _model(server: ServerFacts) -> str:
    """Its name and what is known of its weights."""
    known = [server.weights] if server.weights else []
    known += [] if server.parameters is None else [f"{server.parameters / 1e6:,.0f} M parameters"]
    known += [] if server.weight_bytes is None else [f"{server.weight_bytes / 1e6:,.0f} MB"]
    return f"{server.model} ({', '.join(known)})" if known else str(server.model)


def _notes(result: CaseResult) -> list[str]:
    """What is to be said of a case beside its figures."""
    from headrace.bench.against.doubts import doubts_of_row

    notes = []
    if doubts := doubts_of_row(result):
        notes.append(f"{result.case}: do not rely on this row: {'; '.join(doubts)}")
    if result.left_out and result.ours:
        pairs = _number(result.left_out, "pair")
        notes.append(f"{result.case}: {pairs} left out: {result.why_left_out}")
    if result.why_missing is not None:
        ended = f"no pair after {len(result.ours)}" if result.ours else "not measured"
        notes.append(f"{result.case}: {ended}: {result.why_missing}")
    return notes


def _note_of_machine(limits: Sequence[Limits]) -> list[str]:
    from headrace.bench.against.doubts import doubts_of_machine

    return [f"do not rely on the last two columns: {doubt}" for doubt in doubts_of_machine(limits)]


def _number(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def _server_lines(name: str, server: ServerFacts, ready_s: float | None) -> list[str]:
    parts = [server.build or "", server.model or ""]
    parts += [_number(server.slots, "slot")] if server.slots is not None else []
    parts += [f"context {server.context:,}"] if server.context is not None else []
    parts += [f"ready after {ready_s:.2f} s"] if ready_s is not None else []
    lines = [f"{name}: {', '.join(part for part in parts if part) or server.url}"]
    return lines + ([f"  {server.command}"] if server.command else [])


def _limits_line(limits: Sequence[Limits]) -> str:
    if not limits:
        return "no limits: the peer is on another machine, or headrace computes on a device"
    reads = [limit.bytes_per_s / 1e9 for limit in limits]
    rates = [limit.ops_per_s / 1e9 for limit in limits]
    attention = [limit.attention_ops_per_s / 1e9 for limit in limits]
    return (
        f"this machine, read {len(limits)} times: {_spread(reads)} GB/s, "
        f"{_spread(rates, 0)} GOPS (products, {limits[0].kind}), "
        f"{_spread(attention, 0)} GOPS (attention)"
    )


def _cells(result: CaseResult) -> list[str]:
    most, share = result.most_ratio, result.share
    return [
        result.case,
        str(len(result.ours)),
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
