"""Perplexity and KL divergence of files of each type, ours beside llama-quantize's of one source.

    python -m benchmarks.quantized_quality LLAMACPP_BIN --out rows.jsonl [--types Q4_K_M,IQ4_XS]
    python -m benchmarks.quantized_quality --table rows.jsonl

Sources are headrace-base and headrace-moe (Q8_0, as shipped), so both programs quantise again what
is quantised: the base of every divergence is the source itself. The text is held out of their
training: four modules of the standard library, in windows of 512 tokens. Importance is measured
once, as `headrace imatrix` does over other modules, kept beside --out, and read by both programs.
All files are judged by this project's engine, so that only the bytes differ. Types that both refuse
without importance are made with it alone. Errors of tensors are weighed by it. Rows are added to
--out one by one; those that it holds already are not measured again.
"""

from __future__ import annotations

import argparse
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from headrace.config.settings import EngineConfig
from headrace.embedded import embedded_model
from headrace.eval.divergence import Divergence, divergence
from headrace.eval.importance import measured_importance
from headrace.eval.load import load_models
from headrace.eval.tensor_errors import tensor_errors
from headrace.eval.text import windows_of_file
from headrace.ops import make_ops
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.importance import (
    ImportanceFile,
    read_importance,
    write_importance,
)
from headrace.weights.quantize.make import QuantizeOptions, make
from headrace.weights.quantize.mixes import UNSAFE_WITHOUT_IMPORTANCE
from headrace.weights.quantize.plan import mix_of

TYPES = (
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_0", "Q4_K_S", "Q4_K_M", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q6_K",
    "IQ3_M", "IQ3_S", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
)  # fmt: skip
HELD_OUT = (
    "email/message.py", "email/headerregistry.py", "wsgiref/handlers.py", "xmlrpc/client.py",
)  # fmt: skip
CALIBRATION = ("argparse.py", "typing.py", "logging/__init__.py", "json/decoder.py")
CONTEXT = 512
CALIBRATION_WINDOWS = 40
MODELS = Path(__file__).parents[1] / "models"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was judged."""

    model: str
    type: str
    program: str
    """"headrace" or "llama-quantize"."""
    importance: bool
    nbytes: int
    divergence: Divergence
    errors: dict[str, tuple[str, float]] = {}
    """The kind and the relative RMSE of each tensor that is not as it was."""


def joined(names: Sequence[str], folder: Path, to: str) -> Path:
    """A file of modules of the standard library, one behind the other."""
    library = Path(sysconfig.get_paths()["stdlib"])
    path = folder / to
    path.write_bytes(b"".join((library / name).read_bytes() for name in names))
    return path


def importance_of(source: Path, text: Path, path: Path, threads: int) -> None:
    """Write how large the inputs of the source's matrices are over the text."""
    checkpoint = open_checkpoint(source)
    windows = windows_of_file(checkpoint, text, CONTEXT, limit=CALIBRATION_WINDOWS)
    ops = make_ops("cpu", cpu_level="auto", threads=threads)
    write_importance(path, measured_importance(checkpoint, ops, windows, text.name))


def judged(source: Path, path: Path, text: Path, limit: int | None, threads: int) -> Divergence:
    """The divergence of the file from its source over the text."""
    checkpoints = [open_checkpoint(source), open_checkpoint(path)]
    windows = windows_of_file(checkpoints[0], text, CONTEXT, limit=limit)
    loaded = load_models(checkpoints, EngineConfig(threads=threads), CONTEXT)
    base, other = loaded.models
    return divergence(base, other, loaded.ops, windows)


def errors_of(source: Path, path: Path, importance: ImportanceFile) -> dict[str, tuple[str, float]]:
    """The kind and the relative RMSE of each tensor of the file that is not as in its source."""
    found = tensor_errors(path, source, importance).tensors
    return {each.name: (each.kind, each.relative_rmse) for each in found if each.largest}


def is_made(mix: str, has_importance: bool) -> bool:
    """Whether a file of this type is made: some are refused without importance."""
    return has_importance or mix_of(mix).kind not in UNSAFE_WITHOUT_IMPORTANCE


def rows_of(arguments: argparse.Namespace, known: set[tuple[Any, ...]]) -> Iterator[Row]:
    """A row for every model, type, program, with and without importance, that is not known."""
    sources = {
        "headrace-base": Path(embedded_model()),
        "headrace-moe": MODELS / "headrace-moe/headrace-moe-q8_0.gguf",
    }
    sources = {name: sources[name] for name in arguments.models.split(",")}
    threads = arguments.threads
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        held_out = joined(HELD_OUT, folder, "held-out.py")
        calibration = joined(CALIBRATION, folder, "calibration.py")
        for model, source in sources.items():
            columns = arguments.out.with_name(f"{arguments.out.stem}.{model}.imatrix.gguf")
            if not columns.exists():
                importance_of(source, calibration, columns, threads)
            for mix in arguments.types.split(","):
                for program in ("headrace", "llama-quantize"):
                    for importance in (None, columns):
                        key = model, mix, program, importance is not None
                        if key in known or not is_made(mix, importance is not None):
                            continue
                        path = folder / "made.gguf"
                        path.unlink(missing_ok=True)
                        if program == "headrace":
                            order = QuantizeOptions(
                                mix_of(mix), importance=importance, allow_requantize=True
                            )
                            make(source, path, order, threads=threads)
                        else:
                            tool = Path(arguments.llamacpp) / "llama-quantize"
                            given = [] if importance is None else ["--imatrix", str(importance)]
                            subprocess.run(
                                [tool, "--allow-requantize", *given, source, path, mix],
                                check=True,
                                capture_output=True,
                            )
                        yield Row(
                            model=model,
                            type=mix,
                            program=program,
                            importance=importance is not None,
                            nbytes=path.stat().st_size,
                            divergence=judged(source, path, held_out, arguments.windows, threads),
                            errors=errors_of(source, path, read_importance(columns)),
                        )


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each model and type; standard errors in the last digits."""
    by_key = {(row.model, row.type, row.program, row.importance): row for row in rows}
    lines = []
    for model in dict.fromkeys(row.model for row in rows):
        lines += [
            f"| {model} | bytes | headrace | llama-quantize | headrace, importance | "
            "llama-quantize, importance |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for mix in dict.fromkeys(row.type for row in rows if row.model == model):
            cells = [
                by_key.get((model, mix, program, importance))
                for importance in (False, True)
                for program in ("headrace", "llama-quantize")
            ]
            sizes = [f"{row.nbytes:,}" for row in cells if row is not None]
            lines.append(
                f"| {mix} | {' / '.join(dict.fromkeys(sizes))} | "
                + " | ".join("–" if row is None else _cell(row.divergence) for row in cells)
                + " |"
            )
        lines.append("")
    return "\n".join([*lines, *_ratios(rows)])


def _ratios(rows: Sequence[Row]) -> list[str]:
    """Lines of a table: ratios of the errors of tensors, ours over llama-quantize's, by kind."""
    by_key = {(row.model, row.type, row.importance, row.program): row for row in rows}
    ratios: dict[tuple[str, bool], list[float]] = {}
    for (model, mix, importance, program), row in by_key.items():
        other = by_key.get((model, mix, importance, "llama-quantize"))
        if program != "headrace" or other is None:
            continue
        for name, (kind, error) in row.errors.items():
            other_kind, other_error = other.errors.get(name, ("", 0.0))
            if kind == other_kind and other_error:
                ratios.setdefault((kind, importance), []).append(error / other_error)
    lines = [
        "| kind | importance | tensors | least | median | largest |",
        "|---|---|---|---|---|---|",
    ]
    for (kind, importance), found in sorted(ratios.items()):
        lines.append(
            f"| {kind} | {'with' if importance else 'without'} | {len(found)} | {min(found):.3f} | "
            f"{median(found):.3f} | {max(found):.3f} |"
        )
    return lines


def _cell(of: Divergence) -> str:
    return (
        f"{of.kl_mean:.5f} ± {of.kl_error:.5f}; {of.kl_quantiles['0.999']:.3f}; "
        f"{of.perplexity_ratio:.4f} ± {of.perplexity_ratio_error:.4f}"
    )


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("llamacpp", nargs="?", help="folder of llama-quantize")
    parser.add_argument("--out", type=Path, help="file that gets a JSON line for each row")
    parser.add_argument("--table", type=Path, help="print the table of such a file")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--models", default="headrace-base,headrace-moe")
    parser.add_argument("--windows", type=int, help="default: the whole text")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    path = arguments.table or arguments.out
    if path is None or (arguments.table is None and arguments.llamacpp is None):
        parser.error("give LLAMACPP_BIN and --out, or --table")
    if arguments.table is not None and not arguments.table.exists():
        parser.error(f"--table {arguments.table}: is not there")
    rows = []
    if path.exists():
        rows = [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]
    if arguments.table is not None:
        print(table(rows))
        return
    known = {(row.model, row.type, row.program, row.importance) for row in rows}
    for row in rows_of(arguments, known):
        with path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        print(row.model, row.type, row.program, row.importance, _cell(row.divergence), flush=True)


if __name__ == "__main__":
    main()
