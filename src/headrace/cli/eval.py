"""`headrace eval`: perplexity of a checkpoint, and its divergence from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headrace.config import EngineConfig
    from headrace.models import Model
    from headrace.ops.interface import Ops
    from headrace.weights.checkpoint import Checkpoint

F = TypeVar("F", bound=Callable[..., Any])

KV_CODECS = ("f32", "bf16", "fp8", "int8", "q8_0", "q4_0")
"""Those of headrace.ops.kv, written out so that --help imports no NumPy."""


@click.group("eval")
def evaluate() -> None:
    """Measure how well a checkpoint predicts a text, alone or compared with another."""


def _shared(command: F) -> F:
    """Options of both commands."""
    options = [
        click.option(
            "--text",
            required=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="UTF-8 file to predict.",
        ),
        click.option(
            "--context",
            type=click.IntRange(min=4),
            default=512,
            show_default=True,
            help="Tokens in a window; its second half is scored.",
        ),
        click.option(
            "--windows",
            "limit",
            type=click.IntRange(min=1),
            help="Number of windows to score. [default: the whole text]",
        ),
        click.option(
            "--kv-cache-dtype",
            "kv_codec",
            type=click.Choice(KV_CODECS),
            help="Type that K and V are stored in. [default: f32 for F32 weights, else bf16]",
        ),
        click.option(
            "--kv-cache-dtype-v",
            "v_codec",
            type=click.Choice(KV_CODECS),
            help="Type that V is stored in. [default: that of K]",
        ),
        click.option(
            "--tokenizer-pre",
            help="Rule by which text is split, as in `serve`, in place of a wrong one in a GGUF "
            "file.",
        ),
        click.option(
            "--backend",
            default="cpu",
            show_default=True,
            help="Backend that computes: cpu or reference.",
        ),
        click.option("--cpu-level", default="auto", help="Dispatch level. [default: the best]"),
        click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@evaluate.command(short_help="Measure the perplexity of a model over a text.")
@click.argument("model", required=False, default="")
@_shared
def perplexity(
    model: str,
    text: Path,
    context: int,
    limit: int | None,
    kv_codec: Any,
    v_codec: Any,
    tokenizer_pre: str | None,
    backend: str,
    cpu_level: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure the perplexity of MODEL over a text, in the same windows as llama.cpp, so that
    figures can be compared.

    Without MODEL, the small model that ships in the package is used.

    \b
    headrace eval perplexity ./model.gguf --text wiki.test.raw
    headrace eval perplexity ./model.gguf --text wiki.test.raw --context 2048 --windows 20 --json
    """
    from headrace.cli.counting import counting
    from headrace.eval.perplexity import perplexity as measure
    from headrace.eval.text import windows_of_file

    settings = _settings(backend, cpu_level, threads, kv_codec, v_codec)
    (checkpoint,), ops, (loaded,) = _load([model], settings, context)
    windows = windows_of_file(checkpoint, text, context, limit=limit, pre=tokenizer_pre)
    with counting("windows") as progress:
        result = measure(
            loaded, ops, windows, kv_codec=kv_codec, v_codec=v_codec, progress=progress
        )
    if as_json:
        _print_json(result)
        return
    click.echo(f"perplexity {result.perplexity:.4f} +- {result.error:.4f}")
    click.echo(
        f"{result.tokens:,} tokens in {result.windows} windows of {result.context}, "
        f"{result.nll:.4f} nats a token"
    )


@evaluate.command(short_help="Measure the KL divergence from another model over a text.")
@click.argument("model", required=False, default="")
@click.option("--base", required=True, help="The checkpoint to compare with: a path or a name.")
@click.option(
    "--base-kv-cache-dtype",
    "base_kv_codec",
    type=click.Choice(KV_CODECS),
    help="Type that K and V of the base are stored in. [default: those of MODEL]",
)
@_shared
def kl(
    model: str,
    base: str,
    base_kv_codec: Any,
    text: Path,
    context: int,
    limit: int | None,
    kv_codec: Any,
    v_codec: Any,
    tokenizer_pre: str | None,
    backend: str,
    cpu_level: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure the KL divergence of MODEL's distributions from those of --base over a text.

    Both read the token ids of the base's tokenizer.

    \b
    headrace eval kl ./model-Q4_K_M.gguf --base ./model-BF16.gguf --text wiki.test.raw
    headrace eval kl ./model-Q8_0.gguf --base Qwen/Qwen3-0.6B --text notes.txt --windows 20
    """
    from headrace.cli.counting import counting
    from headrace.eval.divergence import divergence
    from headrace.eval.text import windows_of_file

    settings = _settings(backend, cpu_level, threads, kv_codec, v_codec)
    (of_base, _), ops, (loaded_base, loaded) = _load([base, model], settings, context)
    windows = windows_of_file(of_base, text, context, limit=limit, pre=tokenizer_pre)
    with counting("windows") as progress:
        result = divergence(
            loaded_base,
            loaded,
            ops,
            windows,
            kv_codec=kv_codec,
            v_codec=v_codec,
            base_kv_codec=base_kv_codec,
            progress=progress,
        )
    if as_json:
        _print_json(result)
        return
    click.echo(f"KL divergence {result.kl_mean:.6f} +- {result.kl_error:.6f} nats")
    quantiles = ", ".join(f"{q} {value:.6f}" for q, value in result.kl_quantiles.items())
    click.echo(f"quantiles: {quantiles}, largest {result.kl_max:.6f}")
    click.echo(f"same most likely token: {result.same_top:.3%}")
    click.echo(
        f"probability of the text's token: {result.p_change_mean:+.4%} on average, "
        f"{result.p_change_rms:.4%} rms"
    )
    click.echo(
        f"perplexity {result.perplexity:.4f}, of the base {result.base_perplexity:.4f} "
        f"({result.tokens:,} tokens)"
    )


def _settings(
    backend: Any, cpu_level: Any, threads: int | None, kv_codec: Any, v_codec: Any
) -> EngineConfig:
    from headrace.config import EngineConfig

    return EngineConfig(
        backend=backend,
        cpu_level=cpu_level,
        threads=threads,
        kv_cache_dtype=kv_codec or "auto",
        kv_cache_dtype_v=v_codec or "auto",
    )


def _load(
    models: Sequence[str], settings: EngineConfig, context: int
) -> tuple[list[Checkpoint], Ops, tuple[Model, ...]]:
    """The checkpoints that MODELs name, fetched where they are not on this disk, and their models
    on one backend.
    """
    import msgspec

    from headrace.cli.obtain import obtain
    from headrace.eval.load import load_models
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    checkpoints = []
    for model in models:
        config, _ = obtain(msgspec.structs.replace(settings, model=model))
        checkpoints.append(open_checkpoint(resolve_model(config.model)))
    return checkpoints, *load_models(checkpoints, settings, context)


def _print_json(result: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(result))
