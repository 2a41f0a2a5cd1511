"""`headrace plan fit`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace.cli.options import integer
from headrace.cli.plan.options import (
    catalog_of,
    catalog_options,
    hardware_named,
    place_options,
    step_tokens_option,
    storage_of,
    storage_options,
)
from headrace.cli.plan.output import keep_for_explain, output_options, plan_about, write_page

DEFAULT_CONTEXT_TOKENS = 8192


@click.command(short_help="Check whether a model fits, with which context and users.")
@click.argument("model")
@place_options
@click.option(
    "--context",
    metavar="INTEGER",
    callback=integer,
    help="Tokens of a request, prompt and output together. [default: 8192, or the model's own "
    "length if less]",
)
@click.option("--users", type=int, default=1, help="Number of requests at once. [default: 1]")
@storage_options
@click.option(
    "--kv-type-sliding",
    metavar="TEXT",
    help="Storage kind of keys and values in layers with a window, where it is another than in "
    "other layers. [default: --kv-type]",
)
@step_tokens_option
@click.option(
    "--host-memory",
    metavar="INTEGER",
    callback=integer,
    help="Bytes of memory of the machine that a card is in, for experts computed on its CPU where "
    "the card does not hold all (64G). [default: this machine's with --hardware this, else not "
    "checked]",
)
@click.option(
    "--speculative-config",
    "-sc",
    metavar="TEXT",
    help="Sources of drafts, as for `headrace serve`: a draft model, a head, or the model's own "
    "layer for further tokens is counted, with its weights and its KV cache.",
)
@catalog_options
@output_options
def fit(
    model: str,
    hardware: str,
    count: int,
    context: int | None,
    users: int,
    quantization: str | None,
    kv_type: str,
    kv_type_sliding: str | None,
    block_size: int,
    step_tokens: int,
    host_memory: int | None,
    speculative_config: str | None,
    folders: tuple[str, ...],
    as_json: bool,
    plot: bool | None,
    html: Path | None,
    keep: bool,
) -> None:
    """Show whether MODEL fits, the maximum context and users, and what would make it fit.

    MODEL is a GGUF file, a folder with safetensors, a config.json, the name of a model of the hub
    or of Ollama that is on this disk, or a model of the catalog. Only headers are read, not
    weights.

    \b
    headrace plan fit qwen3-8b --hardware rtx-4090 --context 16384 --users 4
    headrace plan fit ./model.gguf --hardware this
    headrace plan fit ./model.gguf --hardware this -sc '{"model": "./draft.gguf"}'
    headrace plan fit qwen3-30b-a3b --hardware rtx-4060-ti-16gb --quantization q4-k-m
    headrace plan fit qwen3-30b-a3b --hardware rtx-4090 --host-memory 64G
    headrace plan fit llama-3.3-70b --quantization fp8 --hardware h100 --count 2 --users 64
    """
    from dataclasses import replace

    from headrace.errors import ConfigError
    from headrace.plan.machine.hardware_memory import THIS, place_of
    from headrace.plan.memory.fit import fit as fit_of
    from headrace.plan.memory.kv_cache import kv_kind
    from headrace.plan.memory.memory import Load
    from headrace.plan.model.find_model import shape_named

    known = catalog_of(folders)
    shape = shape_named(known, model, os.environ)
    tokens = context or min(shape.context_tokens or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)
    storage = storage_of(known, shape, quantization, kv_type, block_size)
    if kv_type_sliding is not None:
        if all(layer.window_tokens is None for layer in shape.attention):
            raise ConfigError(
                f"--kv-type-sliding {kv_type_sliding} is for layers with a window, and {model} has "
                "none. Omit it, or set --kv-type"
            )
        storage = replace(storage, sliding=kv_kind(kv_type_sliding, known))
    load = Load(tokens if context is None else context, users, step_tokens)
    place = place_of(known, hardware_named(known, hardware, count), count)
    draft = None
    if speculative_config is not None:
        from headrace.engine.drafts.speculative_config import read_speculative_config
        from headrace.plan.memory.draft import draft_named

        draft = draft_named(known, read_speculative_config(speculative_config), shape, os.environ)
    if host_memory is None and hardware == THIS:
        host_memory = place_of(known, THIS).memory_bytes
    here = None if host_memory is None else round(host_memory * place.usable_share)
    found = fit_of(known, shape, place, storage, load, draft=draft, host_bytes=here)
    about = plan_about("fit", folders)
    if keep:
        keep_for_explain(found.as_dict(), about)
    if as_json:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        from headrace.cli.plan.tables.fit import print_fit

        print_fit(found, plot)
    if html is not None:
        from headrace.plan.page import plan_page

        write_page(html, plan_page(known, about, fit=found))
