"""`headrace eval report`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.eval.options import (
    load_named,
    located,
    text_options,
)
from headrace.cli.json_line import print_json

if TYPE_CHECKING:
    from headrace.config import EngineConfig
    from headrace.eval.report import FileMeasurement, QualityReport, Speed


@click.command(short_help="Compare files of one model: size, quality, speed.")
@click.argument("models", metavar="FILE...", nargs=-1, required=True)
@click.option("--base", required=True, help="The reference: a path or a name.")
@click.option(
    "--new",
    type=click.IntRange(1, 100_000),
    default=64,
    show_default=True,
    help="Tokens that one request decodes while the clock runs.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Timed runs of each file, after one that is not timed.",
)
@click.option("--no-speed", is_flag=True, help="Omit tokens/s and MBU, and time nothing.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with the plots of size and quality to this file.",
)
@text_options
def report(
    models: tuple[str, ...],
    base: str,
    new: int,
    repeats: int,
    no_speed: bool,
    html: Path | None,
    text: Path,
    context: int,
    limit: int | None,
    tokenizer_pre: str | None,
    as_json: bool,
    settings: EngineConfig,
) -> None:
    """Compare files of one model with --base over a text: size, bits per weight, perplexity ratio,
    KL divergence, most likely tokens, tokens per second and share of the memory bandwidth.

    Files that another one beats in size and mean KL are marked. Each is compared and timed alone:
    memory is needed for --base and the largest.

    \b
    headrace eval report *-Q4_K_M.gguf *-Q6_K.gguf --base model-BF16.gguf --text wiki.test.raw
    headrace eval report q4.gguf q8.gguf --base Qwen/Qwen3-0.6B --text notes.txt --html report.html
    """  # fmt: skip
    from headrace import __version__
    from headrace.cli.counting import counting
    from headrace.errors import ConfigError
    from headrace.eval.report import QualityReport, ReportedFile, file_facts, with_front
    from headrace.telemetry.machine import this_machine
    from headrace.weights.open import open_checkpoint

    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--html {html}: name a file that ends in .html")
    names = _short_names([base, *models])
    with counting("files") as progress:
        files = []
        for number, model in enumerate(models, 1):
            files.append(
                _measured(
                    base, model, names[number], settings, text, context, limit, tokenizer_pre,
                    None if no_speed else (new, repeats),
                )
            )  # fmt: skip
            progress(number, len(models))
    reference = open_checkpoint(located(base))
    cpu, cpus, _ = this_machine()
    result = QualityReport(
        text=text.name,
        base=ReportedFile(
            facts=file_facts(names[0], reference),
            divergence=None,
            speed=None if no_speed else _speed(base, settings, new, repeats),
            front=False,
        ),
        files=with_front(files),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=f"{cpu}, {cpus} processors",
        version=__version__,
    )
    _show(result, html, as_json)


def _measured(
    base: str,
    model: str,
    name: str,
    settings: EngineConfig,
    text: Path,
    context: int,
    limit: int | None,
    pre: str | None,
    timing: tuple[int, int] | None,
) -> FileMeasurement:
    """One file beside the reference. name: of the file in the report."""
    from headrace.eval.divergence import divergence
    from headrace.eval.report import FileMeasurement, file_facts
    from headrace.eval.text import windows_of_file

    (of_base, checkpoint), ops, (loaded_base, loaded) = load_named([base, model], settings, context)
    windows = windows_of_file(of_base, text, context, limit=limit, pre=pre)
    found = divergence(loaded_base, loaded, ops, windows, cache=settings)
    facts = file_facts(name, checkpoint)
    del loaded_base, loaded, ops  # room for the engine
    speed = None if timing is None else _speed(model, settings, *timing)
    return FileMeasurement(facts=facts, divergence=found, speed=speed)


def _speed(model: str, settings: EngineConfig, new: int, repeats: int) -> Speed:
    import msgspec

    from headrace.bench.engine import Case, run_case
    from headrace.engine.load import load_engine
    from headrace.eval.report import Speed

    case = Case(prompt=0, new=new, batch=1, depth=0)
    config = msgspec.structs.replace(
        settings, model=str(located(model)), max_model_len=case.positions, max_num_seqs=2
    )
    core, _ = load_engine(config)
    result = run_case(core, case, repeats=repeats)
    return Speed(
        tokens_per_s=result.tokens_per_s,
        least_tokens_per_s=result.least_tokens_per_s,
        most_tokens_per_s=result.most_tokens_per_s,
        mbu=result.mbu,
    )


def _short_names(models: list[str]) -> list[str]:
    """The last parts of the paths, and more of them where two different ones end alike."""
    for count in range(1, max(len(Path(model).parts) for model in models) + 1):
        names = [str(Path(*Path(model or "headrace-base").parts[-count:])) for model in models]
        if len(set(names)) == len(set(models)):
            break
    return names


def _show(result: QualityReport, html: Path | None, as_json: bool) -> None:
    from headrace.cli.eval.report_page import quality_page, quality_sheet
    from headrace.cli.plan.output import write_page

    if html is not None:
        write_page(html, quality_page(result))
    if as_json:
        print_json(result)
        return
    from headrace.bench.report.table import SheetTable
    from headrace.cli.bench.console import wide_console

    wide_console().print(SheetTable(quality_sheet(result)))
