"""`headrace bench engine`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.numbers import numbers

if TYPE_CHECKING:
    from headrace.bench.engine import Result
    from headrace.engine.messages import EngineInfo


@click.command()
@click.argument("model", required=False, default="")
@click.option(
    "-p",
    "--prompt",
    callback=numbers,
    default="512",
    show_default=True,
    help="Prompt lengths in tokens; 0 leaves prefill out.",
)
@click.option(
    "-n",
    "--new",
    callback=numbers,
    default="128",
    show_default=True,
    help="New tokens; 0 leaves decoding out.",
)
@click.option(
    "-b", "--batch", callback=numbers, default="1", show_default=True, help="Requests at once."
)
@click.option(
    "--depth",
    callback=numbers,
    default="0",
    show_default=True,
    help="Tokens in the cache before; multiples of the block size, 32.",
)
@click.option("--together", is_flag=True, help="Time prompt and new tokens as one test.")
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads.")
@click.option("--cpu-level", default="auto", help="Dispatch level. [default: the best]")
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Timed runs of each test, after one that is not.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random prompts.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per test.")
@click.option(
    "--roofline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the tests under this machine's roof to this SVG file.",
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
    repeats: int,
    seed: int,
    markdown: bool,
    as_json: bool,
    roofline: Path | None,
) -> None:
    """Measure the engine on MODEL: prefill and decode, in tokens per second.

    Lists such as `-b 1,8,32` give a test for every combination, as in llama-bench. MBU and MFU are
    shares of the limits that `headrace bench machine` has stored; without it they are left out.
    """  # fmt: skip
    from headrace.bench.engine import combined, run_case
    from headrace.cli.counting import counting
    from headrace.config import EngineConfig
    from headrace.engine.load import load_engine
    from headrace.errors import ConfigError

    cases = combined(prompt, new, batch, depth, together=together)
    if not cases:
        raise ConfigError("--prompt and --new are both 0: there is nothing to time")
    block_size = EngineConfig().block_size
    for one in cases:
        if one.depth % block_size:
            raise ConfigError(f"--depth {one.depth} is not a multiple of {block_size} tokens")
    config = EngineConfig(
        model=model,
        threads=threads,
        cpu_level=cpu_level,
        max_model_len=max(one.positions for one in cases),
        max_num_seqs=max(one.batch for one in cases),
    )
    core, _ = load_engine(config)
    info = core.info()
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
        _print_results_json(results, info)
    else:
        _print_results(results, info, markdown)
    if roofline is not None:
        _write_roofline(roofline, results, info, model or "embedded model")


def _print_results_json(results: Sequence[Result], info: EngineInfo) -> None:
    import msgspec

    facts = {
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


def _write_roofline(path: Path, results: Sequence[Result], info: EngineInfo, name: str) -> None:
    from headrace.bench.roofline import Point, roofline_svg
    from headrace.errors import ConfigError

    read, compute = info.read_limit_bytes_per_s, info.compute_limit_ops_per_s
    if read is None or compute is None:
        raise ConfigError(
            f"--roofline needs this machine's limits at level {info.cpu_level} with "
            f"{info.num_threads} threads; run `headrace bench machine` first"
        )
    points = [Point(f"{one.test} b{one.batch}", one.intensity, one.ops_per_s) for one in results]
    kind = info.compute_limit_kind or ""
    title = f"{name}: {info.weight_codec}, {info.cpu_level}, {info.num_threads} threads"
    svg = roofline_svg(points, bytes_per_s=read, ops_per_s=compute, title=title, kind=kind)
    path.write_text(svg, encoding="utf-8")
    click.echo(f"roofline written to {path}", err=True)
