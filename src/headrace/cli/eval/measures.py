"""`headrace eval perplexity` and `headrace eval kl`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.eval.options import (
    KV_CODECS,
    load_named,
    text_options,
)
from headrace.cli.json_line import print_json

if TYPE_CHECKING:
    from headrace.config import EngineConfig


@click.command(short_help="Measure the perplexity of a model over a text.")
@click.argument("model", required=False, default="")
@text_options
def perplexity(
    model: str,
    text: Path,
    context: int,
    limit: int | None,
    tokenizer_pre: str | None,
    as_json: bool,
    settings: EngineConfig,
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

    (checkpoint,), ops, (loaded,) = load_named([model], settings, context)
    windows = windows_of_file(checkpoint, text, context, limit=limit, pre=tokenizer_pre)
    with counting("windows") as progress:
        result = measure(loaded, ops, windows, cache=settings, progress=progress)
    if as_json:
        print_json(result)
        return
    click.echo(f"perplexity {result.perplexity:.4f} +- {result.error:.4f}")
    click.echo(
        f"{result.tokens:,} tokens in {result.windows} windows of {result.context}, "
        f"{result.nll:.4f} nats a token"
    )


@click.command(short_help="Measure the KL divergence from another model over a text.")
@click.argument("model", required=False, default="")
@click.option("--base", required=True, help="The checkpoint to compare with: a path or a name.")
@click.option(
    "--base-kv-cache-dtype",
    "base_kv_codec",
    type=click.Choice(KV_CODECS),
    help="Type that K and V of the base are stored in. [default: those of MODEL]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Seed of the draws from which the errors of quantiles are computed.",
)
@text_options
def kl(
    model: str,
    base: str,
    base_kv_codec: Any,
    seed: int,
    text: Path,
    context: int,
    limit: int | None,
    tokenizer_pre: str | None,
    as_json: bool,
    settings: EngineConfig,
) -> None:
    """Measure the KL divergence of MODEL's distributions from those of --base over a text.

    Both read the token ids of the base's tokenizer. The figures are those of llama-perplexity
    --kl-divergence; standard errors allow for neighbouring tokens that are alike.

    \b
    headrace eval kl ./model-Q4_K_M.gguf --base ./model-BF16.gguf --text wiki.test.raw
    headrace eval kl ./model-Q8_0.gguf --base Qwen/Qwen3-0.6B --text notes.txt --windows 20
    """
    from headrace.cli.counting import counting
    from headrace.config import EngineConfig
    from headrace.eval.divergence import divergence
    from headrace.eval.text import windows_of_file

    (of_base, _), ops, (loaded_base, loaded) = load_named([base, model], settings, context)
    windows = windows_of_file(of_base, text, context, limit=limit, pre=tokenizer_pre)
    of_base_cache = EngineConfig(kv_cache_dtype=base_kv_codec) if base_kv_codec else None
    with counting("windows") as progress:
        result = divergence(
            loaded_base,
            loaded,
            ops,
            windows,
            cache=settings,
            base_cache=of_base_cache,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print_json(result)
        return
    quantiles = result.kl_quantiles
    errors = result.kl_quantile_errors
    rows = [("mean", result.kl_mean, result.kl_error)]
    rows += [(f"{float(q):.4g} quantile", quantiles[q], errors[q]) for q in quantiles]
    rows.append(("largest", result.kl_max, result.kl_max_error))
    click.echo("KL divergence from the base, in nats")
    for name, value, error in rows:
        click.echo(f"  {name:<15}{value:.6f} +- {error:.6f}")
    click.echo(f"same most likely token: {result.same_top:.3%} +- {result.same_top_error:.3%}")
    click.echo(
        f"probability of the text's token: {result.p_change_mean:+.4%} on average, "
        f"{result.p_change_rms:.4%} rms"
    )
    click.echo(
        f"perplexity {result.perplexity:.4f}, of the base {result.base_perplexity:.4f}: ratio "
        f"{result.perplexity_ratio:.6f} +- {result.perplexity_ratio_error:.6f}"
    )
    click.echo(f"{result.tokens:,} tokens, errors over {result.blocks} parts of the text")
