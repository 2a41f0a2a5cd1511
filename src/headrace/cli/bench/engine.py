"""`headrace bench engine`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.cli.device_options import device_options
from headrace.cli.numbers import numbers

if TYPE_CHECKING:
    from headrace.bench.engine import Case, Result
    from headrace.engine.messages import EngineInfo


@click.command(short_help="Measure the engine: prefill and decode, in tokens per second.")
@click.argument("model", required=False, default="")
@click.option(
    "-p",
    "--prompt",
    callback=numbers,
    default="512",
    show_default=True,
    help="Prompt lengths in tokens; 0 skips prefill.",
)
@click.option(
    "-n",
    "--new",
    callback=numbers,
    default="128",
    show_default=True,
    help="New tokens to generate; 0 skips decoding.",
)
@click.option(
    "-b",
    "--batch",
    callback=numbers,
    default="1",
    show_default=True,
    help="Requests that run at once.",
)
@click.option(
    "--depth",
    callback=numbers,
    default="0",
    show_default=True,
    help="Tokens already in the cache; multiples of the block size, 32.",
)
@click.option("--together", is_flag=True, help="Time the prompt and the new tokens as one test.")
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads.")
@click.option("--cpu-level", default="auto", help="Dispatch level. [default: the best]")
@device_options
@click.option(
    "--expert-cache-memory-bytes",
    metavar="INTEGER",
    default="auto",
    help="Memory of the packed experts of a model whose experts do not all fit, as for `serve`; "
    "default: auto.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Timed runs of each test, after one that is not timed.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random prompts.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per test.")
@click.option(
    "--roofline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a roofline of this machine with the tests in it to this SVG file.",
)
def engine(
    model: str,
    prompt: list[int],
    new: list[int],
    batch: list[int],
    depth: list[int],
    together: bool,
    threads: int | None,
    cpu_level: Any,
    backend: Any,
    device: str,
    gpu_memory_utilization: float,
    expert_cache_memory_bytes: str,
    repeats: int,
    seed: int,
    markdown: bool,
    as_json: bool,
    roofline: Path | None,
) -> None:
    """Measure the engine on MODEL: prefill and decode, in tokens per second.

    Lists such as `-b 1,8,32` give a test for every combination, as in llama-bench. MBU and MFU are
    shares of the limits that `headrace bench machine` has stored; without those they are omitted.

    \b
    headrace bench engine ./model.gguf
    headrace bench engine ./model.gguf -p 512,2048 -n 128 -b 1,8,32 --markdown
    headrace bench engine ./model.gguf -p 512 -n 0 --roofline roofline.svg
    """  # fmt: skip
    from headrace.bench.engine import check_fits, combined, run_case
    from headrace.cli.counting import counting
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig, build
    from headrace.engine.load import load_engine
    from headrace.errors import ConfigError

    cases = combined(prompt, new, batch, depth, together=together)
    if not cases:
        raise ConfigError(
            "--prompt and --new, or --batch, are 0, so there is nothing to time: raise one of them"
        )
    block_size = EngineConfig().block_size
    for one in cases:
        if one.depth % block_size:
            raise ConfigError(f"--depth {one.depth} is not a multiple of {block_size} tokens")
    chosen = {"model": model, "expert_cache_memory_bytes": expert_cache_memory_bytes}
    config, _ = obtain(build(EngineConfig, chosen, source="flags"))
    longest = max(cases, key=lambda one: one.positions)
    _check_length(config.model, longest)
    most_requests = max(one.batch for one in cases)
    config = msgspec.structs.replace(
        config,
        threads=threads,
        cpu_level=cpu_level,
        backend=backend,
        device=device,
        gpu_memory_utilization=gpu_memory_utilization,
        max_model_len=longest.positions,
        # A few more than run, so that the KV cache has room for what admission leaves free.
        max_num_seqs=most_requests + most_requests // 50 + 1,
        max_num_batched_tokens=max(config.max_num_batched_tokens, most_requests),
        max_step_ms=0,  # prompts of a batch are measured whole
    )
    core, _ = load_engine(config)
    for one in cases:
        check_fits(core, one)
    info = core.info()
    if roofline is not None:
        _check_roofline(roofline, info)
    results = []
    total = len(cases) * (repeats + 1)
    with counting("measuring") as progress:
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        for one in cases:
            results.append(run_case(core, one, repeats=repeats, seed=seed, on_run=step))
    if as_json:
        _print_results_json(results, info, model, config.max_num_batched_tokens)
    else:
        _print_results(results, info, markdown)
    if roofline is not None:
        _write_roofline(roofline, results, info, _title(model))


def _print_results_json(
    results: Sequence[Result], info: EngineInfo, model: str, step_tokens: int
) -> None:
    """With what `headrace plan calibrate --from` needs to know of where they are from."""
    from headrace import __version__
    from headrace.telemetry.machine import this_machine

    cpu, cpus, memory_bytes = this_machine()
    facts = {
        "model": model,
        "version": __version__,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu,
        "cpus": cpus,
        "memory_bytes": memory_bytes,
        "step_tokens": step_tokens,
        "model_type": info.model_type,
        "weight_codec": info.weight_codec,
        "weight_bytes": info.weight_bytes,
        "kv_cache_dtype": info.kv_cache_dtype,
        "cpu_level": info.cpu_level,
        "threads": info.num_threads,
    }
    for result in results:
        click.echo(msgspec.json.encode({**facts, **msgspec.to_builtins(result)}))


def _print_results(results: Sequence[Result], info: EngineInfo, markdown: bool) -> None:
    header = ["test", "batch", "tokens/s", "least..most", "GB/s", "GOPS"]
    if any(result.mbu is not None for result in results):
        header += ["MBU", "MFU"]
    rows = [_cells(result, len(header)) for result in results]
    title = (
        f"{info.model_type} {info.weight_codec}, {info.weight_bytes / 1e6:,.0f} MB, "
        f"KV {info.kv_cache_dtype}, {info.cpu_level}, {info.num_threads} threads"
    )
    if markdown:
        click.echo(f"{title}\n")
        click.echo("| " + " | ".join(header) + " |")
        click.echo("|---|" + "---:|" * (len(header) - 1))
        for cells in rows:
            click.echo("| " + " | ".join(cells) + " |")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left")
    for cells in rows:
        table.add_row(*cells)
    Console(soft_wrap=True).print(table)


def _cells(result: Result, count: int) -> list[str]:
    cells: list[Any] = [
        result.test,
        str(result.batch),
        f"{result.tokens_per_s:,.1f}",
        f"{result.least_tokens_per_s:,.1f}..{result.most_tokens_per_s:,.1f}",
        f"{result.bytes_per_s / 1e9:.1f}",
        f"{result.ops_per_s / 1e9:,.0f}",
        f"{result.mbu:.0%}" if result.mbu is not None else "",
        f"{result.mfu:.0%}" if result.mfu is not None else "",
    ]
    return cells[:count]


def _check_length(model: str, longest: Case) -> None:
    """Raise ConfigError where the model was not made for so many positions."""
    from headrace.errors import ConfigError
    from headrace.models import read_config
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    limit = read_config(open_checkpoint(resolve_model(model))).max_positions
    if longest.positions > limit:
        raise ConfigError(
            f"{longest.name} takes {longest.positions} positions, including the one it ends "
            f"with; this model was made for {limit} tokens. Use smaller --prompt, --new or "
            "--depth"
        )


def _check_roofline(path: Path, info: EngineInfo) -> None:
    """Raise ConfigError, before anything is timed, where no plot could be made."""
    from headrace.errors import ConfigError

    if info.read_limit_bytes_per_s is None or info.compute_limit_ops_per_s is None:
        raise ConfigError(
            f"--roofline needs this machine's limits at level {info.cpu_level} with "
            f"{info.num_threads} threads; run `headrace bench machine` first"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"--roofline {path}: the folder {path.parent} does not exist; create it first"
        )


def _title(model: str) -> str:
    """A file by its name alone: pictures are passed on, folders are nobody's business."""
    return (Path(model).name if Path(model).exists() else model) or "embedded model"


def _write_roofline(path: Path, results: Sequence[Result], info: EngineInfo, name: str) -> None:
    from headrace.bench.roofline import Point, roofline_svg
    from headrace.errors import ConfigError

    read, compute = info.read_limit_bytes_per_s, info.compute_limit_ops_per_s
    assert read is not None and compute is not None, "checked before"
    points = [Point(f"{one.test} b{one.batch}", one.intensity, one.ops_per_s) for one in results]
    kind = info.compute_limit_kind or ""
    title = f"{name}: {info.weight_codec}, {info.cpu_level}, {info.num_threads} threads"
    notes = (
        "pp: a prompt of this many tokens",
        "tg: this many tokens generated",
        "@ d: this many already in the cache",
        "b: requests that run at once",
    )
    svg = roofline_svg(
        points, bytes_per_s=read, ops_per_s=compute, title=title, kind=kind, notes=notes
    )
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--roofline {path}: {error.strerror}") from error
    click.echo(f"roofline written to {path}", err=True)
